"""What a replayed step is made of: the CUDA graph, the batch it reads, the optimiser in it, the result it leaves."""
