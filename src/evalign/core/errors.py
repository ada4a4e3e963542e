"""What evalign raises and warns of by a type of its own. Imports nothing."""


class InputError(ValueError):
    """A file or an option that cannot be used as it is. The command line prints it as one line."""


class NeedsTorch(ImportError):
    """Something of the upper floor, where PyTorch is not installed. Printed as one line too."""


class TrainingWarning(UserWarning):
    """Training goes on, but something looks wrong; the text says what may help."""
