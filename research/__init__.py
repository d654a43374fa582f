"""What only writes the documents of this repository; run from its root, not part of the package."""
