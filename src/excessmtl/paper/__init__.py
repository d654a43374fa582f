"""The experiments of the paper: which runs each figure needs, and how it is drawn from them."""
