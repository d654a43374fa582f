"""Studies in YAML and their runs: many at a time, on one machine or a cluster, resumable."""
