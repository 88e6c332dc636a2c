"""`python -m graphclean`, and the command `graphclean`."""

from typing import NoReturn

from .cli.loading import loading


def main() -> NoReturn:
    """Run the command line; an interrupt is heard even before that is there."""
    with loading():
        from .cli.app import main as run
    run()


if __name__ == "__main__":
    main()
