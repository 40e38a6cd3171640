"""The entry for spark-submit: the same audit, on the Spark that spark-submit configures.

    spark-submit --master spark://… $(python -m kquota.cli.submit) LOG… --quotas quotas.yaml

Run by itself it prints its own path, which is what spark-submit needs.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """`kquota audit` with the arguments of the command line."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        sys.stdout.write(os.path.abspath(__file__) + "\n")
        return
    # spark-submit puts the script's own folder first on the path, where modules must not be found by accident.
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    from kquota.cli.main import run

    sys.exit(run(["audit", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
