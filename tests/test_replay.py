"""The replay itself: it finds what differs, and does not call equal what it did not replay."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from kquota.core.enforcement import Mode, kernel
from tests.support.data import DATA
from tests.support.replay import main, replay_document

VECTORS = sorted(Path(__file__).with_name("vectors").glob("enforcement_*.json"))


def load(path: Path = VECTORS[0]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
@pytest.mark.parametrize("options", [[], ["--plain"], ["--types", "fetch,produce+request"]])
def test_kafkas_answers_are_ours(path: Path, options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(path), *options]) == 0
    equal, _, total, word = capsys.readouterr().out.splitlines()[-1].split()
    assert equal == total
    assert word == "equal"
    assert int(total) > 10


@pytest.mark.parametrize("index", range(len(load()["vectors"])))
def test_any_other_answer_is_a_difference(index: int) -> None:
    vector = load()["vectors"][index]
    for part in ("expected", "debug_readout"):
        for key in vector.get(part, {}):
            changed = copy.deepcopy(vector)
            changed[part][key][-1] = "another"
            document = {"algorithm": load()["algorithm"], "vectors": [changed]}
            _, _, (difference,) = replay_document(document, kernel(Mode.PLAIN))
            where = f"{vector['id']}: {key}: event {len(vector['events']) - 1}: expected 'another'"
            assert difference.startswith(where)


RESOLUTION = load(DATA / "replay" / "resolution.json")


def test_resolution_cases() -> None:
    equal, total, differences = replay_document({"vectors": [RESOLUTION]}, kernel(Mode.PLAIN))
    assert (equal, total, differences) == ({"resolution": 1}, {"resolution": 1}, [])
    for key in ("level", "quota", "tags", "sensor_suffix", "max_value_in_window"):
        changed = copy.deepcopy(RESOLUTION)
        changed["cases"][0][key] = "another"
        _, _, differences = replay_document({"vectors": [changed]}, kernel(Mode.PLAIN))
        assert differences[0].startswith(f"alice: {key}: event 0:")
    _, _, differences = replay_document({"vectors": [{**RESOLUTION, "quota_types_enabled": 7}]}, kernel(Mode.PLAIN))
    assert len(differences) == 1


def quota(user: str | None, value: int | None) -> dict[str, Any]:
    return {"user": user, "user_default": user is None, "client_id": None, "client_id_default": False, "value": value}


def test_end_to_end_with_quotas_that_change() -> None:
    vector = {
        "id": "moving",
        "type": "e2e",
        "t0_ms": 1_700_000_000_000,
        "config": {
            "window_num": 11,
            "window_size_s": 1,
            "quotas": [],
            "quota_changes": [[1000, quota(None, 1000)], [2000, quota("bob", 100)], [3000, quota("bob", None)]],
        },
        "events": [[0, "bob", "a", 99_999], *([t, "bob", "a", 11_000] for t in (1000, 2000, 3000))],
        "expected": {
            # Nothing is recorded before the first quota; then bob's one counter keeps its history.
            "throttle_ms": [0, 1000, 210_000, 23_000],
            "sensor": [None, "Produce-bob:", "Produce-bob:", "Produce-bob:"],
        },
    }
    _, _, differences = replay_document({"vectors": [vector]}, kernel(Mode.PLAIN))
    assert not differences
