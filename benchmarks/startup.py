"""What starting kquota costs beside what Python and click cost: `python -m benchmarks.startup [--repeat 15]`.

CPU milliseconds of a whole process, the least of several runs in turns, and the ratio to `python -c "import click"`.
"""

import argparse
import os
import resource
import subprocess
import sys

COMPLETION = {"_KQUOTA_COMPLETE": "bash_complete", "_KQUOTA_BEFORE": "kquota describe --us"}
CASES: dict[str, tuple[list[str], dict[str, str]]] = {
    "python alone": (["-c", "pass"], {}),
    "import click": (["-c", "import click"], {}),
    "kquota --help": (["-m", "kquota", "--help"], {}),
    "kquota alter --help": (["-m", "kquota", "alter", "--help"], {}),
    "a usage error": (["-m", "kquota", "describe", "--nonsense"], {}),
    "completion": (["-m", "kquota"], COMPLETION),
}


def cpu_ms(arguments: list[str], environment: dict[str, str]) -> float:
    """User and system time of one process, in ms."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], capture_output=True, env=os.environ | environment, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def main() -> None:
    """Runs the benchmark and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=15)
    repeat = parser.parse_args().repeat
    least = dict.fromkeys(CASES, float("inf"))
    for _ in range(repeat):
        for name, case in CASES.items():
            least[name] = min(least[name], cpu_ms(*case))
    for name, cost in least.items():
        print(f"{name:22} {cost:7.1f} ms CPU  {cost / least['import click']:5.2f} × import click")


if __name__ == "__main__":
    main()
