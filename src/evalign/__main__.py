"""`python -m evalign`: the command line, for when its script is not on the path."""

from evalign.cli import main

if __name__ == "__main__":
    main()
