"""`python -m graphclean`, and the command `graphclean`."""

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line; an interrupt is heard even while torch is still being loaded."""
    try:
        from .cli import main as run

        run()
    except KeyboardInterrupt:
        print("graphclean: interrupted; nothing was written", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
