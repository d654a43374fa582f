"""The gradients of every task: one container, and several ways to compute what is in it."""
