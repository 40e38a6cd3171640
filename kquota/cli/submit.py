"""The entry for spark-submit: the same audit, on the Spark that spark-submit configures.

    spark-submit --master spark://… $(python -m kquota.cli.submit) LOG… --quotas quotas.yaml
    spark-submit --master yarn --deploy-mode cluster --py-files kquota.zip \\
        $(python -m kquota.cli.submit --py-files kquota.zip) LOG… --quotas quotas.yaml

Run by itself it prints its own path, which is what spark-submit needs, and with `--py-files OUT.zip` it first writes
kquota there: from that file a driver on the cluster takes it, and so do the executors. A driver that has kquota
installed sends it to the executors by itself.
"""

import argparse
import os
import sys
from pathlib import Path

from kquota.audit.engines.package import write_package
from kquota.cli.main import run
from kquota.errors import InputError


def main() -> None:
    """`kquota audit` with the arguments of the command line."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        _print_entry()
        return
    # spark-submit puts the script's own folder first on the path, where modules must not be found by accident.
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    sys.exit(run(["audit", *sys.argv[1:]]))


def _print_entry() -> None:
    parser = argparse.ArgumentParser(prog="python -m kquota.cli.submit", description="Print the path of the entry.")
    parser.add_argument("--py-files", type=Path, metavar="OUT.zip", help="write kquota there first, for --py-files")
    arguments = parser.parse_args()
    if arguments.py_files is not None:
        try:
            write_package(arguments.py_files)
        except InputError as error:
            sys.exit(f"kquota: {error.message}")
    sys.stdout.write(os.path.abspath(__file__) + "\n")


if __name__ == "__main__":
    main()
