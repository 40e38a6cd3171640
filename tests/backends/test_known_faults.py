"""Which test is there because of which fault of another tool, or which trap of Kafka's own; each test must exist."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
CONTRACT = "backends/contract.py"
ZOOKEEPER = "backends/test_zookeeper.py"
KAFKA = "backends/test_kafka.py"
PEERS = "backends/test_kafka_peers.py"
MODE = "brokers/test_zookeeper_mode.py"
ZNODE = "backends/test_znode.py"
DROP_IN = "cli/kafka_configs"
DESCRIBE_ALTER = "cli/test_describe_alter.py"

# Read in the code of the tools, or in what their users report.
FAULTS_OF_TOOLS = {
    # ansible-kafka-admin, the other tool for ZooKeeper and brokers
    "the default entity fails on ZooKeeper": (CONTRACT, "test_every_kind_carries_every_key_it_may"),
    "names are not URL-encoded in paths": (CONTRACT, "test_awkward_names_stay_apart"),
    "a name with a slash becomes a nested node": (CONTRACT, "test_awkward_names_stay_apart"),
    "the literal <default> never matches what is wanted": (CONTRACT, "test_setting_what_is_set_changes_nothing"),
    "SCRAM credentials in a user's node break describe": (
        CONTRACT,
        "test_credentials_of_a_user_are_no_quotas_and_stay",
    ),
    "nodes of clients without data break describe": (CONTRACT, "test_nodes_without_data_hold_no_quotas"),
    "no version check: a write undoes another's": (CONTRACT, "test_what_another_writer_set_meanwhile_stays"),
    "no version check: not even in a race": (
        "faults/test_zookeeper_faults.py",
        "test_concurrent_writers_lose_no_update",
    ),
    "version 0 is taken for no version": (ZOOKEEPER, "test_version_zero_is_compared_too"),
    "ips are unknown, /config/ips is missing": (CONTRACT, "test_a_directory_that_older_brokers_did_not_make"),
    "keys that are not mentioned are removed": (CONTRACT, "test_keys_that_are_not_mentioned_stay"),
    "whole numbers become floats": (CONTRACT, "test_numbers_come_back_as_they_were"),
    "requests are cut by entities, not by records": (KAFKA, "test_more_operations_than_a_request_may_have"),
    "matching takes quadratic time": (ZOOKEEPER, "test_many_entities_in_bounded_requests"),
    # rpk
    "<default> is read back as a literal name": (CONTRACT, "test_the_literal_name_default_is_not_the_default"),
    "what is printed cannot be read": (DESCRIBE_ALTER, "test_json_validates_and_reads_back"),
    "deleting and adding in one request: brokers refuse the half": (
        CONTRACT,
        "test_removing_and_setting_in_one_alter_sets",
    ),
    "errors of single entities are dropped": (CONTRACT, "test_strict_removal_fails_for_its_entity_only"),
    "errors of single entities leave exit code 0 (kcl as well)": (DESCRIBE_ALTER, "test_alter_several"),
    "only the last entity of an alter is shown": (CONTRACT, "test_results_are_in_the_order_of_mention"),
    # terraform-provider-kafka
    "pairs cannot be expressed": (CONTRACT, "test_filters_match_as_on_brokers"),
    "an empty name stands for the default": ("core/test_entity.py", "test_names_are_not_empty"),
    # jikkou
    "three kinds of entities and two keys are missing": (CONTRACT, "test_every_kind_carries_every_key_it_may"),
    "one unknown entity breaks every listing": (PEERS, "test_what_kquota_does_not_know_is_a_problem_and_not_a_crash"),
    "one bad node breaks every listing": (ZOOKEEPER, "test_problems_are_named_and_the_rest_is_complete"),
    "one bad node breaks every change": (
        "backends/test_zookeeper_mode.py",
        "test_a_node_that_the_broker_cannot_parse_holds_up_itself_only",
    ),
    # julie
    "the default and pairs of one user collide": (CONTRACT, "test_awkward_names_stay_apart"),
    "User:alice is written as a name by mistake, and is a name": (CONTRACT, "test_awkward_names_stay_apart"),
}

# The numbers are those of the project's notes on kafka-configs; those about its output alone are the drop-in's.
TRAPS_OF_KAFKA = {
    "1 one bad node stops every starting broker: none is written": (
        MODE,
        "test_the_broker_starts_again_after_every_kind_of_write",
    ),
    "1 … values": (ZNODE, "test_what_is_written_every_broker_can_parse"),
    "1 … entities": (ZOOKEEPER, "test_impossible_entities"),
    "1 … one that is there is named and can be repaired": (
        MODE,
        "test_what_stops_a_starting_broker_is_never_written_over_and_can_be_repaired",
    ),
    "2 names that migrations did not decode (KAFKA-16411)": (CONTRACT, "test_awkward_names_stay_apart"),
    "2 defaults that migrations made an empty name (KAFKA-16222)": (
        PEERS,
        "test_what_kquota_does_not_know_is_a_problem_and_not_a_crash",
    ),
    "2 a migration of 3.9 takes the quotas along": (
        MODE,
        "test_a_real_migration_takes_the_quotas_along_and_closes_the_door",
    ),
    "3 empty nodes pile up (KAFKA-14285)": (CONTRACT, "test_nodes_without_data_hold_no_quotas"),
    "4 a removed limit lives on until the restart (KAFKA-9658)": (
        MODE,
        "test_a_quota_throttles_a_client_until_it_is_deleted",
    ),
    "4 defaults are broken over the protocol (KAFKA-9942, KAFKA-9980)": (
        CONTRACT,
        "test_every_kind_carries_every_key_it_may",
    ),
    "5 a null client-id escapes client quotas (KAFKA-13341)": (
        "core/test_resolver.py",
        "test_an_empty_client_id_escapes_every_client_default",
    ),
    "6 a describe lags behind an alter": (CONTRACT, "test_set_then_describe"),
    "7 byte rates come back as floats": (CONTRACT, "test_numbers_come_back_as_they_were"),
    "8 a more specific level wins": ("core/test_resolver.py", "test_the_eight_levels_in_order"),
    "10 absent entities are described without a word": (f"{DROP_IN}/test_zookeeper.py", "test_partial_describes"),
    "11 --help is an error": (f"{DROP_IN}/test_command.py", "test_help_is_an_error"),
    "12 clients and then users: the name is taken for the user's": (CONTRACT, "test_filters_match_as_on_brokers"),
    "12 IPv6 and relative names are impossible": (CONTRACT, "test_unusual_names"),
    "13 an entity twice in a request is half applied": (CONTRACT, "test_alterations_of_one_entity_are_merged"),
    "14 NaN is accepted and stored: not by kquota": ("core/test_quota.py", "test_numbers_that_no_key_takes"),
    "14 … and read where others set it": (KAFKA, "test_values_that_only_other_tools_set"),
    "15 a wrong chroot is described without a word": (ZOOKEEPER, "test_a_missing_chroot_is_named"),
    "16 bootstrap.servers of a file loses against the command line": (
        "cli/test_bootstrap.py",
        "test_the_command_line_wins_over_the_file",
    ),
    "18 migrations leave users' nodes readable by the world: ACLs stay as they are": (
        "backends/test_security_zookeeper.py",
        "test_acls_of_a_secured_cluster",
    ),
    "change notifications pile up": (MODE, "test_change_notifications_that_others_left_do_not_hold_up_ours"),
    "what is written while migrating is lost": (ZOOKEEPER, "test_a_migrating_cluster_is_left_alone"),
    "… and what is written as it begins": (ZOOKEEPER, "test_a_migration_that_begins_meanwhile_is_noticed"),
}


@cache
def functions(file: str) -> frozenset[str]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize(("fault", "test"), [*FAULTS_OF_TOOLS.items(), *TRAPS_OF_KAFKA.items()])
def test_there_is_a_test(fault: str, test: tuple[str, str]) -> None:
    file, name = test
    assert name in functions(file), fault
