"""Small dense problems behind the Gram-matrix methods: pure torch, fixed iteration counts, no host reads."""
