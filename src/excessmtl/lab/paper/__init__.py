"""The ExcessMTL paper: its figures, its claims and its theory."""
