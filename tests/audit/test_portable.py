"""What lies on a disk or comes from another process is data: nothing that is planted there runs."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
from array import array
from collections import Counter
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota import DEFAULT, Entity, InputError, QuotaKey, QuotaSnapshot
from kquota.audit.batch import Tally, UnreadFile
from kquota.audit.engines.portable import VERSION, decode, encode
from kquota.audit.evidence.prediction_store import Predictions
from kquota.audit.follow.follow import Follower
from kquota.audit.ledger.rows import CounterRef
from kquota.audit.settings import AuditSettings
from kquota.core.change.history import QuotaHistory
from kquota.core.findings.verdicts import Governed, InTurn, Verdict

QUOTAS = QuotaHistory.of(QuotaSnapshot({Entity(user="a", client_id=DEFAULT): {QuotaKey.PRODUCER_BYTE_RATE: 1.5}}))
TURNS = {("1", "k", "s"): InTurn(Verdict.THROTTLED, True)}
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()


@given(
    st.recursive(
        LEAVES,
        lambda some: (
            st.lists(some)
            | st.lists(some).map(tuple)
            | st.dictionaries(st.text() | st.integers() | st.tuples(st.text(), st.integers()), some)
            | st.frozensets(LEAVES)
        ),
    )
)
def test_what_is_written_is_read(value: Any) -> None:
    again = decode(encode(value))
    assert again == value
    assert repr(again) == repr(value) or "{" in repr(value)  # the order of a set is nobody's


@pytest.mark.parametrize(
    "value",
    [
        CounterRef(0, "1", QuotaKey.PRODUCER_BYTE_RATE, "a:\ud800"),
        Tally(7, unread={"a": UnreadFile("a", "b")}, noted={"usage": {"x"}}),
        {("k", "e"): Governed(Counter([Verdict.THROTTLED]), Counter(), TURNS)},
        MappingProxyType({1: float("inf")}),
        array("q", [1, -2]),
        QUOTAS,
        pa.table({"a": [1, None]}),
        Predictions(),
    ],
)
def test_records_are_the_same_again(value: Any) -> None:
    again = decode(encode(value))
    assert type(again) is type(value)
    assert again == value


@pytest.mark.parametrize("dtype", ["int64", "uint32", "int8", "bool", "float64", "<i4"])
@pytest.mark.parametrize("shape", [(0,), (3,), (2, 2)])
def test_arrays_are_the_same_and_can_be_changed(dtype: str, shape: tuple[int, ...]) -> None:
    values = np.ones(shape, dtype)
    again = decode(encode(["odd", b"x", values]))[2]
    assert again.dtype == values.dtype
    assert again.shape == shape
    assert (again == values).all()
    assert again.flags.aligned
    assert again.flags.writeable


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_many_whole_numbers_are_the_same_again(one: int, other: int) -> None:
    values = np.array([one, other] * 1_000).reshape(2, -1)
    again = decode(encode(values))
    assert again.dtype == values.dtype
    assert (again == values).all()
    assert again.flags.writeable
    # Whoever keeps them keeps what is above the least.
    assert (len(encode(values)) < values.nbytes) == (abs(one - other) < 2**32)


@pytest.mark.parametrize("value", [os.system, Path("a"), object(), np.array([object()])])
def test_what_is_not_data_is_not_written(value: Any) -> None:
    with pytest.raises(TypeError, match="is not data"):
        encode(value)


def planted(tree: str, blocks: str = "[]") -> bytes:
    head = f"[{tree},{blocks}]".encode()
    return VERSION + len(head).to_bytes(8, "little") + head


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"something else",
        pickle.dumps({"files": []}),
        planted('{"record":["os:system",["true"]]}'),
        planted('{"record":["kquota.audit.engines.stages:Iterator",[]]}'),
        planted('{"record":["kquota.audit.engines.local:os.system",["true"]]}'),
        planted('{"record":["kquota.__main__:main",[]]}'),
        planted('{"record":["kquota.audit.batch:Column",[1]]}'),
        planted('{"choice":["kquota.core.quotas.quota:QuotaKey","nothing"]}'),
        planted('{"array":[0,"O",[1]]}', "[8]") + bytes(16),
        planted('{"array":[0,"<i8",[1]]}', "[8]"),
        planted('{"bytes":0}'),
        planted('{"other":[]}'),
        planted("[" * 100_000),
    ],
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        decode(data)


@given(st.data())
def test_damaged_bytes_are_refused_or_read(data: st.DataObject) -> None:
    whole = bytearray(encode(Tally(7, noted={"usage": {"x"}})))
    whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ValueError):
        decode(bytes(whole))


class _Bomb:
    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._mark,)


def test_a_planted_checkpoint_runs_nothing(tmp_path: Path) -> None:
    log, folder, mark = tmp_path / "usage.jsonl", tmp_path / "kept", tmp_path / "ran"
    row = {"time_ms": 1_750_000_000_000, "broker": "1", "user": "a", "client_id": "c", "api": "produce", "bytes": 1}
    log.write_text(json.dumps(row) + "\n")
    settings = AuditSettings(QUOTAS)
    follower = Follower([str(log)], settings, checkpoint_folder=folder)
    follower.turn()
    follower.save()
    follower.close()
    saved = folder / "checkpoint"
    head = saved.read_bytes().partition(b"\n")[0]
    saved.write_bytes(head + b"\n" + pickle.dumps(_Bomb(mark)))
    with pytest.raises(InputError, match="damaged"):
        Follower([str(log)], settings, checkpoint_folder=folder)
    assert not mark.exists()
