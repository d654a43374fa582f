"""The reference engine: per-task gradients of any graph, one backward pass per task, plain and complete."""
