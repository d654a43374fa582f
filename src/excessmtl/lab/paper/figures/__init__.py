"""The figures, one file each: a file added here is found by `excessmtl reproduce` and by the results page."""
