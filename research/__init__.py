"""What only writes the documents of this repository; run from its root, not part of the package."""

from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
