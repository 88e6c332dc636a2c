"""`python -m graphclean`, and the command `graphclean`."""

from typing import NoReturn

from .cli.loading import loading


def main() -> NoReturn:
    """Run the command line; interrupts work even while it is being imported."""
    with loading():
        from .cli.app import main as run
    run()


if __name__ == "__main__":
    main()
