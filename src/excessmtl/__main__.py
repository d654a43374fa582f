"""`python -m excessmtl`."""

from excessmtl.lab.cli import main

if __name__ == "__main__":
    main()
