"""`python -m gavel` is `gavel`."""

from gavel.cli.app import main

if __name__ == "__main__":
    main()
