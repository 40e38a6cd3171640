"""`sources.sizes` against Kafka's own message classes, every version that two releases know between them."""

import json
from collections import Counter
from typing import Any

import pytest

from kquota.audit.sources.request_line import share_fetch_size
from kquota.audit.sources.sizes import (
    FETCH_VERSIONS,
    PRODUCE_VERSIONS,
    SHARE_FETCH_EMPTY,
    fetch_response_size,
    produce_request_size,
)
from tests.differential.java_programs import printed

RELEASES = ("3.9.1", "4.4.0")
"""Kafka 4 dropped the oldest versions, 3.9 is the last to know them; 4.4.0 is the newest release."""
CASES = 150


@pytest.fixture(scope="module")
def outputs() -> dict[str, list[str]]:
    """What `RequestSizes.java` prints, by release."""
    return {release: printed("RequestSizes.java", 20261120, CASES, release=release) for release in RELEASES}


@pytest.fixture(scope="module")
def cases(outputs: dict[str, list[str]]) -> dict[str, list[dict[str, Any]]]:
    return {release: [json.loads(line) for line in lines] for release, lines in outputs.items()}


@pytest.mark.parametrize("release", RELEASES)
def test_sizes_are_those_of_kafka(cases: dict[str, list[dict[str, Any]]], release: str) -> None:
    wrong: list[tuple[str, int, int | None, int]] = []
    size: int | None
    for case in cases[release]:
        if case["api"] == "produce":
            size = produce_request_size(case["header"], case["body"])
        elif case["api"] == "share_fetch":
            size = share_fetch_size(case["version"], 0, case["body"])
        else:
            size = fetch_response_size(case["version"], case["body"])
        if size != case["size"]:
            wrong.append((case["api"], case["version"], size, case["size"]))
    assert not wrong, f"{len(wrong)} of {len(cases[release])} differ: {wrong[:10]}"


def test_every_version_was_compared(cases: dict[str, list[dict[str, Any]]]) -> None:
    compared = Counter((case["api"], case["version"]) for each in cases.values() for case in each)
    expected = {"produce": PRODUCE_VERSIONS, "fetch": FETCH_VERSIONS, "share_fetch": SHARE_FETCH_EMPTY}
    assert compared.keys() == {(api, version) for api, versions in expected.items() for version in versions}
    # There is one empty response only.
    assert min(count for (api, _), count in compared.items() if api != "share_fetch") >= CASES


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    "rare", ["divergingEpoch", "currentLeader", "snapshotId", "nodeEndpoints", '"records":null', "producerId"]
)
def test_the_cases_have_what_is_rare(outputs: dict[str, list[str]], release: str, rare: str) -> None:
    assert any(rare in line for line in outputs[release])


@pytest.mark.parametrize("version", [-1, 14, 99])
def test_an_unknown_produce_version_is_refused(version: int) -> None:
    with pytest.raises(ValueError, match=f"produce version {version} is not known"):
        produce_request_size({"requestApiVersion": version, "clientId": ""}, {})


@pytest.mark.parametrize("version", [-1, 19, 99])
def test_an_unknown_fetch_version_is_refused(version: int) -> None:
    with pytest.raises(ValueError, match=f"fetch version {version} is not known"):
        fetch_response_size(version, {})
