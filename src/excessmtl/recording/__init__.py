"""CUDA graphs: the work of a step, or a whole training step, recorded once and launched as a whole."""
