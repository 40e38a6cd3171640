"""What a request of a simulation costs with 100, 1,000 and 10,000 clients: `python -m benchmarks.simulate [--full]`.

Each run is a process of its own: producers of one request a second under a byte-rate and a request quota, each with
counters of its own, or all with the counters of one user; closed loop, on one broker. Printed are CPU nanoseconds per
request (the least of three runs, what a client costs by itself included), their ratio to the run with 100 clients, and
the peak of the process's memory. Runs are 20 simulated minutes; with `--full`, an hour.
"""

import argparse
import json
import resource
import subprocess
import sys
import time

from kquota.core.enforcement import Generation, Mode, kernel
from kquota.core.quotas.entity import DEFAULT, Entity
from kquota.core.quotas.quota import QuotaKey
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.core.simulation.engine import simulate
from kquota.core.simulation.workload import Client, Workload

MINUTE_MS = 60_000


def run(clients: int, duration_ms: int, shared: bool, mode: Mode) -> dict[str, float]:
    """One simulation in this process: requests, CPU seconds and peak memory (MiB)."""
    using = kernel(mode)
    limit = 1_000 * (clients if shared else 1)
    quotas = QuotaSnapshot(
        {Entity(user=DEFAULT): {QuotaKey.PRODUCER_BYTE_RATE: limit, QuotaKey.REQUEST_PERCENTAGE: 100.0}}
    )

    def workload(count: int, length_ms: int) -> Workload:
        user = "everybody" if shared else "user-{n}"
        client = Client("producer", "produce", user, "app-{n}", count=count, pace=1.0, size=1_020, nanos=200_000)
        return Workload(length_ms, (client,), scrape_ms=0)

    simulate(workload(2, 20_000), quotas, generation=Generation.N_PLUS_1_BY_LAST, using=using)  # loads the kernel
    seconds = []
    for _ in range(3):
        before = time.process_time()
        result = simulate(workload(clients, duration_ms), quotas, generation=Generation.N_PLUS_1_BY_LAST, using=using)
        seconds.append(time.process_time() - before)
    return {
        "requests": result.events,
        "seconds": min(seconds),
        "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def measured(clients: int, duration_ms: int, shared: bool, mode: Mode) -> dict[str, float]:
    """The same in a process of its own."""
    arguments = json.dumps([clients, duration_ms, shared, mode.value])
    command = [sys.executable, "-m", "benchmarks.simulate", "--run", arguments]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def main() -> None:
    """Runs the benchmark and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="every run is one hour")
    parser.add_argument("--plain", action="store_true", help="without numba")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        clients, duration_ms, shared, mode = json.loads(options.run)
        print(json.dumps(run(clients, duration_ms, shared, Mode(mode))))
        return
    mode = Mode.PLAIN if options.plain else Mode.COMPILED
    duration_ms = MINUTE_MS * (60 if options.full else 20)
    for shared in (False, True):
        print("one counter for all clients" if shared else "a counter for each client")
        baseline = 0.0
        for clients in (100, 1_000, 10_000):
            found = measured(clients, duration_ms, shared, mode)
            cost = found["seconds"] / found["requests"] * 1e9
            baseline = baseline or cost
            print(
                f"  {clients:6} clients, {duration_ms / 1000:6.0f} s: {found['requests']:10.0f} requests, "
                f"{found['seconds']:6.2f} s CPU, {cost:6.0f} ns/request, {cost / baseline:4.2f} × that of 100 clients, "
                f"{found['mib']:4.0f} MiB"
            )


if __name__ == "__main__":
    main()
