"""The ExcessMTL paper: its figures and its claims."""
