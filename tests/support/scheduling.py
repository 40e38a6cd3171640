"""The order of the tests: random within each module, and modules side by side on several workers (pytest-xdist).

A module is run by one worker as a whole, so its servers start once. Modules that share an expensive server are one unit
of work, and units that take long come first: no worker waits for a long one at the end.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

UNITS: Mapping[str, Sequence[str]] = {
    "a secured cluster": (
        "tests/backends/test_kafka.py",
        "tests/backends/test_security_kafka.py",
        "tests/backends/test_security_zookeeper.py",
        "tests/backends/test_security_zookeeper_cli.py",
    ),
    "a broker in ZooKeeper mode": (
        "tests/backends/test_zookeeper_mode.py",
        "tests/brokers/test_zookeeper_mode.py",
    ),
    "a Spark cluster": (
        "tests/audit/test_cluster.py",
        "tests/audit/test_faults.py",
        "tests/audit/test_stream.py",
    ),
    "Spark": (
        "tests/audit/test_cuts.py",
        "tests/audit/test_damage.py",
        "tests/audit/test_dataframe.py",
        "tests/audit/test_job.py",
        "tests/audit/test_judge.py",
        "tests/audit/test_stream.py",
        "tests/audit/test_verdicts.py",
    ),
    # No server, but the replays of the recordings, which the first of them keeps; one compares with Spark.
    "the recordings": (
        "tests/audit/test_mutations.py",
        "tests/audit/test_recommend.py",
        "tests/audit/test_recorded.py",
        "tests/test_generated.py",
    ),
}
"""Modules that share a server, by the server."""

LONG: Sequence[str] = (
    "Spark",
    "a Spark cluster",
    "a broker in ZooKeeper mode",
    "a secured cluster",
    "tests/faults/test_kills.py",
    "tests/faults/test_apply_faults.py",
    "tests/test_examples.py",
    "tests/test_demo.py",
    "tests/cli/test_completion.py",
    "tests/test_kafka_configs.py",
    "the recordings",
    "tests/faults/test_races.py",
    "tests/differential/test_config_command.py",
    "tests/test_install.py",
    "tests/core/simulation/test_engine.py",
    "tests/cli/test_simulate.py",
    "tests/cli/test_audit.py",
    "tests/cli/test_describe_alter.py",
    "tests/cli/test_probe.py",
    "tests/cli/test_plan_apply.py",
    "tests/differential/test_metrics.py",
    "tests/differential/test_one_broker.py",
    "tests/audit/test_connect.py",
    "tests/audit/test_usage_topic.py",
    "tests/brokers/test_share_fetch.py",
    "tests/brokers/test_samples.py",
    "tests/documents/test_hostile_documents.py",
)
"""The units and modules that take longest, the longest first."""

SERVERS = frozenset(
    {"browser", "cluster", "kraft", "secured_zookeeper", "spark", "started_zookeeper_mode_broker", "zookeeper"}
)
"""Fixtures that start a server."""

WITH_SERVERS: Sequence[str] = (
    *("tests/brokers", "tests/differential", "tests/faults"),
    *("tests/audit/test_cluster.py", "tests/audit/test_connect.py", "tests/audit/test_dataframe.py"),
    *(
        "tests/audit/test_engines.py",
        "tests/audit/test_faults.py",
        "tests/audit/test_files.py",
        "tests/audit/test_usage_topic.py",
    ),
    *("tests/backends/test_controller.py", "tests/backends/test_migrated.py", "tests/backends/test_stores.py"),
    *("tests/cli/test_audit.py", "tests/cli/test_bootstrap.py", "tests/cli/test_brokers.py"),
    *("tests/cli/test_closed_loop.py", "tests/cli/test_completion.py", "tests/cli/test_migrate.py"),
    *("tests/cli/test_probe.py", "tests/cli/test_sandbox.py"),
    "tests/tools/test_pairs.py",
    *("tests/test_ci_recipe.py", "tests/test_demo.py", "tests/test_examples.py", "tests/test_install.py"),
    *("tests/test_kafka_configs.py", "tests/test_manual.py", "tests/test_reconcile.py", "tests/test_sandbox.py"),
)
"""Folders and modules whose tests start servers, Java or other programs by themselves, or wait for them."""

NIGHTLY: Sequence[str] = (
    # Spark: tests/audit/test_job.py and the demo meet it each day.
    *("tests/audit/test_cluster.py", "tests/audit/test_connect.py", "tests/audit/test_cuts.py"),
    *("tests/audit/test_dataframe.py", "tests/audit/test_faults.py", "tests/audit/test_stream.py"),
    "tests/audit/test_judge.py::test_requests_and_samples_side_by_side",
    "tests/audit/test_mutations.py::test_a_rotated_log_tells_what_a_whole_one_does[spark]",
    "tests/audit/test_recorded.py::test_from_the_shell_and_by_spark_submit",
    "tests/audit/test_recorded.py::test_spark_finds_the_same",
    "tests/audit/test_verdicts.py::test_every_engine_says_the_same",
    "tests/audit/test_damage.py::test_files_that_cannot_be_read_on_every_engine",
    # Brokers: the contract suite meets one with KRaft and one in ZooKeeper mode each day.
    *("tests/audit/test_usage_topic.py", "tests/brokers/test_samples.py", "tests/brokers/test_share_fetch.py"),
    *("tests/brokers/test_zookeeper_mode.py", "tests/tools/test_releases.py"),
    "tests/backends/test_security_kafka.py::test_kafkas_own_tool_reads_the_same_file",
    "tests/backends/test_security_zookeeper_cli.py::test_a_named_context_gets_no_credentials_of_the_environment",
    "tests/backends/test_security_zookeeper_cli.py::test_the_drop_in_takes_kafkas_own_options",
    # Kafka's own tool, and its classes with many examples: test_one_broker.py asks these each day.
    *("tests/differential/test_config_command.py", "tests/differential/test_metrics.py"),
    *(f"tests/test_kafka_configs.py::test_kafkas_answers_are_ours[protocol-{mode}]" for mode in ("kraft", "zkbroker")),
    # Kills and races.
    *("tests/faults/test_apply_faults.py", "tests/faults/test_kills.py", "tests/faults/test_races.py"),
    # Simulations of minutes, whose short forms the module tries as well.
    "tests/cli/test_simulate.py::test_plots_stand_on_their_own",
    "tests/cli/test_simulate.py::test_what_would_be_enough_without_a_quota",
    # Live loads, whose answers come late on a busy machine: the probes of one broker beside all other tests.
    "tests/cli/test_probe.py::test_after_a_signal_no_topic_is_left_and_what_was_seen_is_printed",
    "tests/cli/test_probe.py::test_a_broker_throttles_as_predicted",
    # Installations, and each example of the manual.
    *("tests/test_install.py", "tests/test_examples.py", "tests/test_ci_recipe.py", "tests/test_notebook.py"),
)
"""What `make test` leaves to `make nightly`: modules, and beginnings of the names of tests."""

_NO_JAVA = """\
#!/bin/sh
echo "a test without servers starts ${0##*/}: tests/support/scheduling.py says which modules do that" >&2
exit 1
"""

_UNIT_OF = {module: unit for unit, modules in UNITS.items() for module in modules}


def unit_of(nodeid: str) -> str:
    """The unit of work that a test belongs to: a shared server's name, otherwise the path of its module."""
    module = nodeid.partition("::")[0]
    return _UNIT_OF.get(module, module)


def arrange(items: list[pytest.Item], seed: int) -> None:
    """Puts the tests into the order in which they run: long units first, and within a module as the seed has it."""
    modules: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        modules[item.nodeid.partition("::")[0]].append(item)

    def rank(module: str) -> tuple[int, str]:
        unit = unit_of(module)
        return (LONG.index(unit) if unit in LONG else len(LONG)), unit

    items.clear()
    for module in sorted(modules, key=rank):
        # Each module draws by itself: its order is the same where it runs alone.
        Random(f"{seed} {module}").shuffle(modules[module])
        items += modules[module]


def needs_server(item: pytest.Item) -> bool:
    """Whether one of the test's fixtures starts a server, or the test is marked as one that does."""
    return bool(item.get_closest_marker("server")) or not SERVERS.isdisjoint(getattr(item, "fixturenames", ()))


def waits_for_night(item: pytest.Item) -> bool:
    """Whether `make nightly` runs the test, and `make test` does not."""
    return item.nodeid.startswith(tuple(NIGHTLY))


def hide_java() -> None:
    """Lets tests that start Java or Maven fail: they need more than Python."""
    folder = Path(tempfile.mkdtemp(prefix="kquota-no-java-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for program in ("java", "mvn"):
        (folder / program).write_text(_NO_JAVA)
        (folder / program).chmod(0o755)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
    os.environ.pop("JAVA_HOME", None)


def scheduler(config: pytest.Config, log: Any) -> Any:
    """pytest-xdist's scheduler that gives each unit of work to one worker, in the order of the collected tests."""
    from xdist.scheduler.loadscope import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return unit_of(nodeid)

    return Scheduling(config, log)
