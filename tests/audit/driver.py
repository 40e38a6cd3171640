"""A driver of its own, for the Spark masters that the tests' session is not for: audits generated logs, and compares.

    python -m tests.audit.driver [--examples 3] [--executor-python PATH] [MASTER…]

As spark-submit runs it, the master is the one of spark-submit. Ends with 0 when all findings are those of a plain
replay.
"""

import argparse
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings

from kquota.audit.engines import spark
from kquota.audit.result import AuditResult
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import Split, plan_splits
from kquota.core.change.history import QuotaHistory
from tests.audit import oracle
from tests.audit.oracle import Event


def compare(audit: Callable[[list[Split], AuditSettings], AuditResult], examples: int) -> int:
    """Audits so many sets of generated logs. Returns how many of their counters were throttled.

    Raises AssertionError when a finding is not that of a plain replay.
    """
    throttled = 0

    # An example costs a job, so it holds many logs, and one that fails is shown as it was found.
    @given(events=oracle.many_logs(), quotas=oracle.quota_histories(), against=oracle.quota_histories())
    @settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def check(events: list[Event], quotas: QuotaHistory, against: QuotaHistory) -> None:
        nonlocal throttled
        with tempfile.TemporaryDirectory() as folder:
            oracle.write_files(events, Path(folder), 3)
            result = audit(plan_splits([folder], "usage"), AuditSettings(quotas, against=against))
        for found, tested in ((result.findings, quotas), (result.before, against)):
            expected = oracle.findings(events, AuditSettings(tested))
            assert oracle.as_expected(found, expected) == expected
            throttled += sum(row.throttled > 0 for row in expected.values())

    check()
    return throttled


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=3)
    parser.add_argument("--executor-python", help="that of the masters that are not local")
    parser.add_argument("masters", nargs="*", metavar="MASTER")
    arguments = parser.parse_args()
    for master in arguments.masters or [None]:
        if arguments.executor_python and not master.startswith("local"):
            os.environ["PYSPARK_PYTHON"] = arguments.executor_python
        session = spark.open_session(master)

        def audit(splits: list[Split], audit_settings: AuditSettings) -> AuditResult:
            return spark.audit(session, splits, audit_settings, "usage")  # noqa: B023 - called before the next one

        throttled = compare(audit, arguments.examples)
        print(f"{master or session.sparkContext.master}: equal, {throttled} counters throttled", flush=True)
        session.stop()


if __name__ == "__main__":
    main()
