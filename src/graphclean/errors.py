"""What a user is told when something they gave can't be used."""


class InputError(ValueError):
    """Bad input: one line that says what is wrong, where, and what to do. The CLI exits with 2."""


class DataWarning(UserWarning):
    """The data is usable, with a reservation the user should know."""
