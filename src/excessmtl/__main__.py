"""`python -m excessmtl`."""

from excessmtl.cli import main

if __name__ == "__main__":
    main()
