"""Compiled and plain are the same, everywhere; and nothing is loaded before it is needed."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota.audit.engines.package import write_package
from kquota.core.enforcement import Generation, Mode, MutationSensor, QuotaWindows, kernel
from kquota.core.enforcement import kernel as kernel_function
from kquota.core.enforcement.kernel import (
    Kernel,
    _cache,
    _compiled_kernel,
    _digest,
    _fingerprint,
    _functions,
    _source,
    is_compiling,
)
from kquota.core.enforcement.replay import Events
from kquota.core.quotas.quota import Value
from kquota.errors import MissingDependency
from tests.core.enforcement import strategies as given_
from tests.support.enforcement import (
    FetchSensor,
    ProduceSensor,
    RequestSensor,
    fetch_with_request,
    produce_with_request,
)

ROOT = Path(__file__).parents[3]
PLAIN, COMPILED = kernel(Mode.PLAIN), kernel(Mode.COMPILED)
event_lists = st.lists(
    st.tuples(given_.gaps, given_.sizes, given_.nanos, st.sampled_from([-1, 0, 1])), min_size=1, max_size=60
)


def state(sensor: ProduceSensor | FetchSensor | RequestSensor) -> list[object]:
    return [list(sensor.counter.ints), list(sensor.counter.floats)]


@settings(deadline=None)
@given(event_lists, given_.windows, given_.generations, given_.byte_limits, given_.byte_limits, given_.request_limits)
def test_compiled_is_plain(
    events: list[tuple[int, int, int, int]],
    windows: QuotaWindows,
    generation: Generation,
    limit: Value | None,
    later: Value | None,
    request_limit: Value | None,
) -> None:
    outcomes = []
    for using in (PLAIN, COMPILED):
        produce, fetch, produce2, fetch2 = (
            kind(limit, windows=windows, generation=generation, using=using)
            for kind in (ProduceSensor, FetchSensor, ProduceSensor, FetchSensor)
        )
        request, produce_request, fetch_request = (
            RequestSensor(request_limit, windows=windows, generation=generation, using=using) for _ in range(3)
        )
        assert isinstance(produce, ProduceSensor)
        assert isinstance(fetch, FetchSensor)
        assert isinstance(produce2, ProduceSensor)
        assert isinstance(fetch2, FetchSensor)
        outcome: list[object] = [fetch.max_fetch_bytes]
        now = given_.START
        for index, (gap, size, nanos, acks) in enumerate(events):
            now += gap
            if index == len(events) // 2:
                produce.limit = fetch.limit = later
            outcome += [produce.produce(now, size), fetch.fetch(now, size)]
            if acks:
                outcome.append(request.request(now, nanos))
            else:
                request.network(now, nanos)
            outcome.append(produce_with_request(produce2, produce_request, now, size, nanos, acks))
            outcome.append(fetch_with_request(fetch2, fetch_request, now, size, nanos))
        outcome += [
            state(sensor) for sensor in (produce, fetch, produce2, fetch2, request, produce_request, fetch_request)
        ]
        outcomes.append(outcome)
    assert outcomes[0] == outcomes[1]


mutation_limits = st.sampled_from([None, 0, 0.001, 0.5, 1, 10, 25.681, 1000])
long_gaps = st.one_of(given_.gaps, st.sampled_from([3_599_999, 3_600_000, 3_600_001]))
topics = st.lists(st.one_of(st.integers(0, 30), st.integers(0, 10_000_000)), max_size=4)


@settings(deadline=None)
@given(
    given_.windows,
    mutation_limits,
    mutation_limits,
    st.lists(st.tuples(long_gaps, topics, st.booleans(), st.integers(0, 5000)), min_size=1, max_size=40),
)
def test_compiled_is_plain_for_mutations(
    windows: QuotaWindows, limit: Value | None, later: Value | None, events: list[tuple[int, list[int], bool, int]]
) -> None:
    outcomes = []
    for using in (PLAIN, COMPILED):
        sensor = MutationSensor(limit, windows=windows, using=using)
        outcome: list[object] = []
        now = given_.START
        for index, (gap, partitions, strict, waited) in enumerate(events):
            now += gap
            if index == len(events) // 2:
                sensor.limit = later
            outcome.append(sensor.request(now, partitions, strict=strict, waited_ms=waited))
        outcome += [list(sensor.counter.floats), list(sensor.counter.ints)]
        outcomes.append(outcome)
    assert outcomes[0] == outcomes[1]


def test_importing_the_enforcement_loads_neither_numpy_nor_numba() -> None:
    script = "import sys, kquota.core.enforcement; print(sorted({'numpy', 'numba'} & sys.modules.keys()))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@pytest.fixture
def without_numba(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "numba", None)
    _compiled_kernel.cache_clear()
    yield
    _compiled_kernel.cache_clear()


@pytest.mark.usefixtures("without_numba")
def test_without_numba_the_same_code_runs_plain() -> None:
    assert kernel_function(Mode.AUTO) is PLAIN
    with pytest.raises(MissingDependency):
        kernel_function(Mode.COMPILED)


def test_the_fingerprint_sees_every_function_and_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    from kquota.core.enforcement import broker

    functions = _functions()
    before = _fingerprint(functions)
    assert _fingerprint(functions) == before
    assert _fingerprint(functions[1:]) != before
    monkeypatch.setattr(broker, "PERCENT_PER_NANO", 1.0)
    assert _fingerprint(functions) != before


LIMIT = """\
from kquota.core.enforcement.kernel import Mode, kernel
limit = kernel(Mode.COMPILED).max_fetch_bytes
print(limit(1000.0, 11, 1), sum(limit.stats.cache_hits.values()), limit.py_func.__code__.co_filename)
"""


def test_a_named_cache_serves_archives_and_folders_alike(tmp_path: Path) -> None:
    """Machine code is kept by the content of the source there, not by the place of the source."""
    write_package(tmp_path / "one.zip")
    said = []
    for place in (tmp_path / "one.zip", ROOT):
        own = {"PYTHONPATH": str(place), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
        command = [sys.executable, "-c", LIMIT]
        said.append(subprocess.check_output(command, env=os.environ | own, cwd=tmp_path, text=True).split())

    assert said[0][0] == said[1][0]
    assert (said[0][1], said[1][1]) == ("0", "1")
    assert said[0][2] == said[1][2]


def test_machine_code_of_an_older_kquota_is_made_anew(tmp_path: Path) -> None:
    """Its types had other names, and an audit ended with an internal error until somebody emptied the cache."""
    command = [sys.executable, "-c", LIMIT]
    own = os.environ | {"PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(tmp_path)}
    first = subprocess.check_output(command, env=own, text=True).split()
    for index in tmp_path.rglob("*.nbi"):
        index.write_bytes(index.read_bytes().replace(b"numba.core.types", b"numba.core.ttypes"))
    said = [subprocess.check_output(command, env=own, text=True).split()[:2] for _ in range(2)]
    assert said == [[first[0], "0"], [first[0], "1"]]


def test_machine_code_is_of_the_modules_that_it_takes_constants_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """An edit of them met old code, as the file of the function was the same."""
    module = Events.__module__
    before = _digest(module)
    _digest.cache_clear()
    assert _digest(module) == before
    monkeypatch.setitem(
        vars(sys.modules[Kernel.__module__]), "_source", lambda name: _source(name) + "#" * (name != module)
    )
    _digest.cache_clear()
    assert _digest(module) != before
    _digest.cache_clear()


def test_only_the_functions_of_a_kernel_can_be_called_from_python() -> None:
    """The others are compiled without a wrapper, which takes longer to compile than most of them."""
    compiled: Any = kernel(Mode.COMPILED)

    wrapped = {name for name in Kernel.__annotations__ if hasattr(getattr(compiled, name), "targetoptions")}
    assert {getattr(compiled, name).targetoptions["no_cpython_wrapper"] for name in wrapped} == {False}
    assert "run_traffic" in wrapped
    inner = compiled.run_traffic.py_func.__globals__["send"]
    assert inner.targetoptions["no_cpython_wrapper"]


def test_compiled_code_is_found_on_the_disk() -> None:
    looked_at: Any = COMPILED.measure  # smaller than the loop of the simulator, and kept in the same way
    using = replace(COMPILED, run_traffic=looked_at)
    using.measure(using.new_counter(QuotaWindows(), Generation.N_PLUS_1_BY_LAST), 0)
    assert using.is_kept()
    assert PLAIN.is_kept()


def test_it_is_known_that_something_is_compiled() -> None:
    """For the progress bar: the first audit on a machine stands still meanwhile."""
    from numba.core import event

    _cache()  # from here on numba tells
    assert not is_compiling()
    with event.trigger_event("numba:compile"):
        assert is_compiling()
    assert not is_compiling()
