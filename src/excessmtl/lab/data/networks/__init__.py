"""The networks of the paper's experiments, written here so that no vision package is needed."""
