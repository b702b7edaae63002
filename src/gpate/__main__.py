"""`python -m gpate` is the command `gpate`."""

from gpate.cli import main

if __name__ == "__main__":
    main()
