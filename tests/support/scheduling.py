"""The order of the tests: random within each module, and modules side by side on several workers.

A module is run by one worker as a whole, so its servers start once. Modules that share an expensive server are one unit
of work, and units that take long come first: no worker waits for a long one at the end.
"""

import atexit
import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import TypeVar

import pytest
from hypothesis import settings

Value = TypeVar("Value")

UNITS: Mapping[str, Sequence[str]] = {
    "a secured cluster": (
        "tests/backends/test_checks.py",
        "tests/backends/test_kafka.py",
        "tests/backends/test_security_kafka.py",
        "tests/backends/test_security_zookeeper.py",
        "tests/backends/test_security_zookeeper_cli.py",
    ),
    "a broker in ZooKeeper mode": ("tests/backends/test_zookeeper_mode.py", "tests/brokers/test_zookeeper_mode.py"),
    "a configured broker": ("tests/brokers/test_record_command.py", "tests/cli/test_brokers.py"),
    "a Spark cluster": ("tests/audit/test_cluster.py", "tests/audit/test_faults.py", "tests/audit/test_stream.py"),
    "a broker": (
        "tests/backends/test_kafka_raw.py",
        "tests/backends/test_watch.py",
        "tests/brokers/test_kafka.py",
        "tests/cli/kafka_configs/test_bootstrap.py",
        "tests/cli/kafka_configs/test_journal.py",
        "tests/cli/kafka_configs/test_waiting.py",
        "tests/cli/test_bootstrap.py",
        "tests/cli/test_completion.py",
        "tests/cli/test_migrate.py",
        "tests/cli/test_probe.py",
        "tests/cli/test_resolve_many.py",
        "tests/cli/test_watch.py",
        "tests/faults/test_cluster_journal.py",
        "tests/test_reconcile.py",
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
        "tests/audit/test_fetch_sizes.py",
        "tests/audit/test_mutations.py",
        "tests/audit/test_recommend.py",
        "tests/audit/test_recorded.py",
    ),
    # The audit of a recorded log as a report needs it.
    "a report": ("tests/audit/test_timeline.py", "tests/cli/test_report.py", "tests/cli/test_screens.py"),
}
"""Modules that share a server, by the server."""

LONG: Sequence[str] = (
    "a broker",
    "a secured cluster",
    "a Spark cluster",
    "Spark",
    "a broker in ZooKeeper mode",
    "tests/faults/test_kills.py",
    "tests/faults/test_apply_faults.py",
    "tests/test_examples.py",
    "tests/faults/test_races.py",
    "tests/brokers/test_live.py",
    "the recordings",
    # These wait more than they compute.
    "tests/backends/test_kafka_peers.py",
    "tests/cli/test_sandbox.py",
    "tests/faults/test_zookeeper_faults.py",
    "tests/cli/test_audit.py",
    "tests/backends/test_zookeeper_peers.py",
    "a report",
    "tests/test_demo.py",
    "tests/backends/test_zookeeper.py",
    "tests/differential/test_config_command.py",
    "tests/test_install.py",
    "a configured broker",
    "tests/cli/test_follow.py",
    "tests/cli/test_top_keys.py",
    "tests/cli/test_ends.py",
    "tests/cli/test_plan_apply.py",
    "tests/test_support.py",
    "tests/differential/test_one_broker.py",
    "tests/test_kafka_configs.py",
    "tests/audit/test_requests.py",
    "tests/audit/test_scanner.py",
    "tests/differential/test_metrics.py",
    "tests/audit/test_connect.py",
    "tests/audit/test_usage_topic.py",
    "tests/brokers/test_share_fetch.py",
    "tests/brokers/test_samples.py",
    "tests/core/simulation/test_engine.py",
    "tests/cli/test_simulate.py",
    "tests/cli/test_describe_alter.py",
    "tests/documents/test_hostile_documents.py",
)
"""The units and modules that take longest, the longest first."""

SERVERS = frozenset(
    {
        *("browser", "cluster", "configured", "kraft", "secured_zookeeper", "spark"),
        *("started_zookeeper_mode_broker", "zookeeper"),
    }
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
    *("tests/cli/test_completion.py", "tests/cli/test_migrate.py"),
    *("tests/cli/test_probe.py", "tests/cli/test_sandbox.py"),
    "tests/tools/test_pairs.py",
    *("tests/test_ci_recipe.py", "tests/test_demo.py", "tests/test_examples.py", "tests/test_install.py"),
    *("tests/test_kafka_configs.py", "tests/test_manual.py", "tests/test_reconcile.py", "tests/test_sandbox.py"),
)
"""Folders and modules whose tests start servers, Java or other programs by themselves, or wait for them."""

NIGHTLY: Sequence[str] = (
    # Spark: the demo meets it each day, and compares its findings with those of the local engine.
    *(
        f"tests/audit/test_job.py::test_{name}"
        for name in (
            "every_form_of_the_usage_table",  # tests/audit/test_usage.py: the same forms, read locally
            "what_is_written_can_be_joined",
        )
    ),
    *("tests/audit/test_cluster.py", "tests/audit/test_connect.py", "tests/audit/test_cuts.py"),
    *("tests/audit/test_dataframe.py", "tests/audit/test_faults.py", "tests/audit/test_stream.py"),
    *(
        f"tests/audit/test_judge.py::test_{name}"
        for name in ("requests_and_samples_side_by_side", "spark_finds_the_same")
    ),
    # Two processes, which test_job.py compares with a plain replay each day, and Spark. One process is a law there.
    "tests/audit/test_mutations.py::test_a_rotated_log_tells_what_a_whole_one_does",
    "tests/audit/test_files.py::test_usage_tables_in_s3[2-parquet]",
    "tests/audit/test_recorded.py::test_from_the_shell_and_by_spark_submit",
    "tests/audit/test_recorded.py::test_spark_finds_the_same",
    "tests/audit/test_verdicts.py::test_every_engine_says_the_same",
    "tests/audit/test_damage.py::test_files_that_cannot_be_read_on_every_engine",
    "tests/audit/test_recommend.py::test_spark_and_the_local_engine_agree",
    # Recordings: each day the newest release, by itself and by the shell.
    "tests/audit/test_recorded.py::test_lines_are_a_little_out_of_order",
    *(f"tests/audit/test_recorded.py::test_single_throttles[{name} " for name in ("one", "3.9.1")),
    # From the shell the demo audits a log, and test_files.py says whose the logs of folders are.
    "tests/audit/test_recorded.py::test_a_cluster_from_the_shell",
    *(f"tests/audit/test_fetch_sizes.py::test_real_fetches_come_out[{name}]" for name in ("one", "3.9.1")),
    # What the audit says under quotas in force, and who was held back: test_recorded.py and test_held_back.py.
    "tests/tools/test_pairs.py::test_predictions_come_as_near_as_stated[in force",
    "tests/tools/test_pairs.py::test_who_was_held_back_is_not_called_free_of_throttling",
    # The same log is audited by test_recorded.py, and rows of a table are simulated each day.
    "tests/cli/test_simulate.py::test_a_request_log_is_replayed",
    # Each beside another value of its parameter.
    "tests/audit/test_recommend.py::test_a_throttled_client_is_not_held_down[False]",
    "tests/audit/test_recommend.py::test_the_replay_throttles_no_more_than_allowed[0.05]",
    # Laws with many examples or long inputs, of which a shorter one stands beside them.
    "tests/audit/test_fetch_sizes.py::test_it_does_not_matter_how_a_log_is_cut",
    "tests/audit/test_follow.py::test_however_quotas_change_meanwhile",
    "tests/core/test_demand.py::test_the_interval_holds_what_it_promises",
    "tests/cli/test_fuzz.py",
    *("tests/audit/test_garbage.py", "tests/cli/test_ends.py::test_writes_do_not_depend_on_who_reads_stdout"),
    "tests/cli/test_ends.py::test_a_terminal_is_asked_what_becomes_of_a_stopped_apply[no]",  # as Ctrl-C there
    # Brokers: the contract suite meets one with KRaft and one in ZooKeeper mode each day.
    *("tests/audit/test_usage_topic.py", "tests/brokers/test_samples.py", "tests/brokers/test_share_fetch.py"),
    *("tests/brokers/test_zookeeper_mode.py", "tests/tools/test_releases.py"),
    # Three controllers: test_bootstrap.py meets the one of a combined node each day, and peers play an election.
    *(
        f"tests/backends/test_controller.py::test_{name}"
        for name in ("any_controller_leads", "only_the_active", "the_controller_validates", "a_broker_is_no_controller")
    ),
    # A walk through a page of the manual: its commands meet a broker in test_record_command.py and test_live.py.
    "tests/brokers/test_on_call.py",
    *(
        f"tests/backends/test_zookeeper_mode.py::TestKafkaBackendInZooKeeperMode::test_{name}"
        for name in ("filters_match_as_on_brokers", "awkward_names_stay_apart")
    ),
    # Ten thousand users of a broker, which are deleted again: test_reconcile.py has plans of several batches.
    "tests/backends/test_kafka.py::test_more_operations_than_a_request_may_have",
    "tests/backends/test_security_kafka.py::test_kafkas_own_tool_reads_the_same_file",
    "tests/backends/test_security_zookeeper_cli.py::test_a_named_context_gets_no_credentials_of_the_environment",
    "tests/backends/test_security_zookeeper_cli.py::test_the_drop_in_takes_kafkas_own_options",
    # Kafka's own tool, and its classes with many examples: test_one_broker.py asks these each day.
    *("tests/differential/test_config_command.py", "tests/differential/test_metrics.py"),
    *(f"tests/differential/test_{name}.py" for name in ("sizes", "java_order", "addresses")),
    *(
        f"tests/differential/test_one_broker.py::test_all_ways_say_the_same[{kind}]"
        for kind in ("n_by_start", "n_plus_1_by_last")
    ),
    "tests/cli/test_export_import.py::test_kafkas_own_tool_runs_what_was_exported",
    "tests/cli/test_migrate.py::test_a_real_migration",
    *(f"tests/test_kafka_configs.py::test_kafkas_answers_are_ours[protocol-{mode}]" for mode in ("kraft", "zkbroker")),
    # What a login that fails is told: the logins that work are tried each day.
    *(
        "tests/backends/test_security_kafka.py::test_it_fails",
        "tests/backends/test_security_zookeeper_cli.py::test_zookeeper_fails",
    ),
    # Every broker of the tests starts from a copy of what the tool wrote.
    "tests/brokers/test_kafka.py::test_storage_is_formatted_as_by_kafkas_own_tool",
    # Kills and races: each day one writer is killed at each of its steps.
    *("tests/faults/test_apply_faults.py", "tests/faults/test_kills.py", "tests/faults/test_races.py"),
    *("tests/faults/test_ensemble.py", "tests/faults/test_scale.py", "tests/faults/test_record_kills.py"),
    *(
        f"tests/faults/test_zookeeper_faults.py::test_a_writer_killed_at_any_step_leaves_both_or_neither[{which}"
        for which in ("existing node", "new node", "new pair, missing")
    ),
    *(
        f"tests/faults/test_zookeeper_faults.py::test_a_{what}"
        for what in ("server_that_falls_silent", "restarted_server", "server_that_never_comes_back")
    ),
    # Simulations of minutes, whose short forms the module tries as well.
    # Live loads, whose answers come late on a busy machine: the probes of one broker beside all other tests.
    "tests/cli/test_probe.py::test_after_a_signal_no_topic_is_left_and_what_was_seen_is_printed",
    "tests/cli/test_probe.py::test_a_broker_throttles_as_predicted",
    # Two processes that compile: each day the workers find what one has compiled.
    "tests/core/enforcement/test_kernel.py::test_a_named_cache_serves_archives_and_folders_alike",
    # Installations, and each example of the manual.
    *("tests/test_install.py", "tests/test_examples.py", "tests/test_ci_recipe.py", "tests/test_notebook.py"),
    "tests/test_generated.py::test_is_not_stale[accuracy.md]",
    # The checks of each change build the documentation, too (`make docs` in .github/workflows/checks.yaml).
    "tests/test_docs.py::test_the_documentation_builds",
    "tests/test_docs.py::test_the_picture_of_the_readme_is_of_this_kquota",
    # The order and the workers of the tests, which each day's run uses.
    *(f"tests/test_support.py::test_{name}" for name in ("the_order_is_random", "workers_run_each_module")),
    # A linter that Go compiles for half a minute: what the workflows run is looked at each day.
    "tests/test_workflows.py::test_actionlint_has_no_complaint",
)
"""What `make test` leaves to `make nightly`: modules, and beginnings of the names of tests."""

LONG_WITHOUT_SERVERS: Sequence[str] = (
    *("tests/audit/test_damage.py", "tests/audit/test_follow.py", "tests/audit/test_job.py"),
    *("tests/audit/test_mutations.py", "tests/audit/test_prediction.py", "tests/audit/test_recommend.py"),
    *("tests/audit/test_recorded.py", "tests/audit/test_requests.py", "tests/audit/test_scanner.py"),
    *("tests/audit/test_usage.py", "tests/audit/test_verdicts.py", "tests/backends/test_security_zookeeper.py"),
    *("tests/cli/test_audit_quotas.py", "tests/cli/test_ends.py", "tests/cli/test_follow.py"),
    *("tests/cli/test_held_back.py", "tests/cli/test_recommend.py", "tests/cli/test_simulate.py"),
    *("tests/cli/test_startup.py", "tests/core/enforcement/test_kernel.py", "tests/core/simulation/test_engine.py"),
    *("tests/documents/test_hostile_documents.py", "tests/test_api.py"),
    *("tests/audit/test_timeline.py", "tests/cli/test_report.py", "tests/cli/test_screens.py", "tests/test_support.py"),
    # Terminals, pipes and peers, which wait for each other.
    *("tests/backends/test_kafka_peers.py", "tests/backends/test_zookeeper_peers.py", "tests/cli/test_exporter.py"),
    *("tests/cli/test_streams.py", "tests/cli/test_top.py", "tests/cli/test_top_keys.py", "tests/test_docs.py"),
    # Commands that read usage: each starts the libraries of the audit.
    *("tests/cli/test_audit_samples.py", "tests/cli/test_plan_usage.py", "tests/cli/test_versions.py"),
    *("tests/cli/test_secrets.py", "tests/cli/test_export_import.py", "tests/cli/test_resolve_many.py"),
    # Recorded logs, and laws over many rows.
    *("tests/audit/test_data_log.py", "tests/audit/test_demand.py", "tests/audit/test_judge.py"),
    *("tests/audit/test_ledger.py", "tests/audit/test_request_log.py", "tests/audit/test_sinks.py"),
    *(
        "tests/audit/test_bounds.py",
        "tests/live/test_followed.py",
        "tests/live/test_generate.py",
        "tests/test_leases.py",
    ),
    "tests/audit/test_fetch_sizes.py::test_real_fetches_come_out",
    "tests/audit/test_request_text.py::test_the_replay_of_a_real_log_is_what_the_broker_did",
    "tests/cli/test_help.py::test_every_schema_is_one_and_is_printed",
    *(f"tests/documents/test_journal.py::test_{name}" for name in ("no_entry_is_lost", "the_kernels_own_refusal")),
    "tests/test_style.py::test_the_docstrings_of_public_names",
)
"""What `make quick` leaves to `make test`, whose kernel is compiled: modules, and beginnings of the names of tests."""

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


def is_long(item: pytest.Item) -> bool:
    """Whether `make test` runs the test, and `make quick` does not."""
    return item.nodeid.startswith(tuple(LONG_WITHOUT_SERVERS))


def examples(many: int) -> int:
    """How many examples a law that takes long gets: `make nightly` tries that many, and each day has a fifth."""
    return max(5, many // 5) if by_day() else many


def part(values: Sequence[Value], number: int) -> Sequence[Value]:
    """Which of the values are tried where each costs a process: `make nightly` has all, and each day a third.

    Those of three tests with different numbers are all of them together.
    """
    return values[number % 3 :: 3] if by_day() else values


def by_day() -> bool:
    """Whether `make test` or `make quick` runs, and not `make nightly`."""
    return settings.get_current_profile_name() in ("daily", "quick")


def hide_java() -> None:
    """Lets tests that start Java or Maven fail: they need more than Python."""
    folder = Path(tempfile.mkdtemp(prefix="kquota-no-java-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for program in ("java", "mvn"):
        (folder / program).write_text(_NO_JAVA)
        (folder / program).chmod(0o755)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
    os.environ.pop("JAVA_HOME", None)
