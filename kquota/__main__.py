"""The entry points: `kquota`, `python -m kquota` and `kquota-kafka-configs`."""

import gc
import sys
from collections.abc import Sequence
from typing import NoReturn

from kquota.cli.main import run


def main() -> None:
    """Runs the command line and ends the process with its exit code."""
    _end(sys.argv[1:])


def kafka_configs() -> None:
    """`kquota-kafka-configs`: the drop-in under a name of its own, for scripts that call Kafka's tool."""
    _end(["kafka-configs", *sys.argv[1:]])


def _end(argv: Sequence[str]) -> NoReturn:
    # Most commands are over before there is any garbage to speak of, and looking for it takes a tenth of their time:
    # look rarely, and not once more through all that the end of the process gives back anyhow.
    gc.set_threshold(50_000)
    code = run(argv)
    gc.freeze()
    sys.exit(code)


if __name__ == "__main__":
    main()
