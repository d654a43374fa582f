"""The gradients of `excessmtl.engine` by quicker means: each file is one of them, and says when it applies."""
