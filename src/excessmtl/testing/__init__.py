"""For authors of rules: `check_rule(MyRule)` checks what every rule owes."""

from excessmtl.testing.checks import check_rule

__all__ = ["check_rule"]
