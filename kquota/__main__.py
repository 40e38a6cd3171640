"""The entry point: `kquota` and `python -m kquota`."""

import sys

from kquota.cli.main import run


def main() -> None:
    """Runs the command line and ends the process with its exit code."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
