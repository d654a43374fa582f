"""Training runs: the loop on Lightning Fabric, run folders, checkpoints."""
