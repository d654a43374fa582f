"""One step: checked inputs, what the rule is shown, its decision, the state, and what is reported."""
