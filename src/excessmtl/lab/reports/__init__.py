"""The HTML report on a folder of runs."""
