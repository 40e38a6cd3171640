"""The entry points: `kquota`, `python -m kquota` and `kquota-kafka-configs`."""

import gc
import sys
from collections.abc import Sequence
from typing import NoReturn

from kquota.cli.main import run
from kquota.garbage import look_seldom


def main() -> None:
    """Runs the command line and ends the process with its exit code."""
    _end(sys.argv[1:])


def kafka_configs() -> None:
    """`kquota-kafka-configs`: the drop-in under a name of its own, for scripts that call Kafka's tool."""
    _end(["kafka-configs", *sys.argv[1:]])


def _end(argv: Sequence[str]) -> NoReturn:
    look_seldom()
    code = run(argv)
    gc.freeze()  # not once more through all that the end of the process gives back anyhow
    sys.exit(code)


if __name__ == "__main__":
    main()
