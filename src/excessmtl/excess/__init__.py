"""Weights by excess risk: Algorithm 1 of the paper, our default, and the estimates that they stand on."""
