"""Excess-risk estimators, one per file."""
