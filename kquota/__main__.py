"""The entry points: `kquota`, `python -m kquota` and `kquota-kafka-configs`."""

import sys

from kquota.cli.main import run


def main() -> None:
    """Runs the command line and ends the process with its exit code."""
    sys.exit(run(sys.argv[1:]))


def kafka_configs() -> None:
    """`kquota-kafka-configs`: the drop-in under a name of its own, for scripts that call Kafka's tool."""
    sys.exit(run(["kafka-configs", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
