"""The error of bad input that a person can mend. Imports nothing."""


class InputError(ValueError):
    """A file or an option that cannot be used as it is. The command line prints it as one line."""
