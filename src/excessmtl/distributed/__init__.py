"""Several processes that train together: sums over them, replicas, sharded parameters."""
