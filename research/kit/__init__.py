"""How the default rule and the robust losses were chosen: many small networks, trained as one (README.md)."""
