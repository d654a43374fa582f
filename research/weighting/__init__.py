"""The test bench for weighting rules: hundreds of small networks trained as one, so that an idea takes minutes."""
