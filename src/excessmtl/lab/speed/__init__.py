"""What weighting the tasks costs: time and memory of a step beside plain PyTorch and peers, in one process."""
