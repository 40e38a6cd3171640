"""How near the audit's predictions come to real runs: `python -m tools.accuracy.pairs.measure FOLDER --out FILE`.

FOLDER holds recordings of one workload (see `record.py`): `none`, `moderate`, `tight`, and second runs `moderate-2` and
`tight-2` for the floor. `kquota audit` reads one recording and predicts another one's quotas; what the clients really
met is read from the log and the facts of the run under those quotas. The second real run is measured against the first
by the same figures: no prediction can be expected to come nearer than that floor.

The figures go into a JSON file, from which `tools.generate` makes the tables of `docs/accuracy.md`.
"""

import argparse
import gzip
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from click.testing import CliRunner

from kquota.audit.sources.event import UsageEvent
from kquota.audit.sources.request_line import parse
from kquota.core.quotas.quota import QuotaKey
from kquota.core.resolve.resolver import Resolver
from kquota.core.simulation import recorded
from kquota.documents.quotas import read_quotas
from tools.accuracy.pairs.tables import (
    Counter,
    Figures,
    Measured,
    Promise,
    Question,
    Recommended,
    figures_document,
    page,
)
from tools.accuracy.throttles import logs_of, read_events

MUTATIONS = {"create_topics", "delete_topics", "create_partitions"}
APIS = {"produce": QuotaKey.PRODUCER_BYTE_RATE, "fetch": QuotaKey.CONSUMER_BYTE_RATE}
EDGE_MS = 50
"""A request that came so late belongs to the time before: a schedule is not kept to the millisecond."""
EMPTY_BYTES = 100
"""An answer to a fetch that holds no records is not larger."""
SHARED = "feed4"
"""The source of the consumers that share a topic."""
LOWERING, RAISING, IN_FORCE = "lowering", "raising", "in force"
QUESTIONS: tuple[tuple[str, str, str], ...] = (
    (LOWERING, "none", "moderate"),
    (LOWERING, "none", "tight"),
    (LOWERING, "moderate", "tight"),
    (RAISING, "tight", "moderate"),
    (IN_FORCE, "moderate", "moderate"),
    (IN_FORCE, "tight", "tight"),
)
"""The kind of question, the recording that is audited, and the one whose quotas are asked about."""

SHOWN = ("client_kind", "basis", "verdict", "throttle_time_ms", "throttle_time_max_ms", "delivered_per_s", "done_ms")
"""What is kept of a prediction."""

Name = tuple[str, str, str]
"""Broker, key and sensor of a counter. Mutations are the cluster's: their broker is empty."""


@dataclass(frozen=True)
class Met:
    """What the clients of one counter really met. Times in ms, units in the quota's."""

    throttled: int = 0
    total_ms: int = 0
    longest_ms: int = 0
    begun_ms: float = 0
    """The first charged request, epoch ms."""
    ended_ms: float = 0
    """The last one."""
    last_ms: float = 0
    """The last one that carried something."""
    units: tuple[tuple[float, float], ...] = ()
    """When and how much was delivered."""
    active_s: int = 0
    """Seconds with requests."""
    throttled_s: int = 0
    """Seconds with throttled requests."""

    def rate(self, seconds: float) -> float | None:
        """Units per second delivered in so many seconds from the first request on."""
        if seconds <= 0 or not self.units:
            return None
        return sum(amount for at, amount in self.units if at <= self.begun_ms + seconds * 1000 + EDGE_MS) / seconds

    @property
    def seconds(self) -> float:
        """From the first request to the last; a second at least."""
        return max(self.ended_ms - self.begun_ms, 1000) / 1000


class Mutation(NamedTuple):
    """The answer to a request that creates topics."""

    time_ms: float
    user: str
    client_id: str
    throttle_ms: int


class Recording:
    """One run: its logs, its quotas, and its facts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def quotas(self) -> Path:
        """What was in force."""
        return self.folder / "quotas.json"

    @cached_property
    def facts(self) -> Mapping[str, Any]:
        """What the clients themselves report."""
        found: Mapping[str, Any] = json.loads((self.folder / "facts.json").read_text(encoding="utf-8"))
        return found

    @property
    def started_ms(self) -> float:
        """When the workload began, epoch ms; what came before is its preparation."""
        return float(self.facts["started_ms"] - 1000)

    @property
    def logs(self) -> Mapping[str, Path]:
        """The request log of each broker."""
        return logs_of(self.folder)

    @cached_property
    def events(self) -> Mapping[str, Sequence[UsageEvent]]:
        """All requests, by broker."""
        return {broker: read_events(path) for broker, path in self.logs.items()}

    def met(self, quotas: Path) -> Mapping[Name, Met]:
        """What the clients met, by the counters that those quotas make of them."""
        snapshot = read_quotas(quotas)
        keys: tuple[QuotaKey, ...] = (*APIS.values(), QuotaKey.REQUEST_PERCENTAGE, QuotaKey.CONTROLLER_MUTATION_RATE)
        resolvers = {key: Resolver.of(snapshot, key) for key in keys}

        @cache
        def counter(key: QuotaKey, user: str, client_id: str) -> str | None:
            found = resolvers[key].resolve(user, client_id)
            return None if found.limit is None else str(found.sensor)

        charged: dict[Name, list[UsageEvent]] = defaultdict(list)
        start = self.started_ms
        for broker, events in self.events.items():
            for event in events:
                if event.exemption or event.time_ms < start:
                    continue
                key = APIS.get(event.api, QuotaKey.REQUEST_PERCENTAGE)
                sensor = counter(key, event.user, event.client_id)
                if sensor is not None and event.api not in MUTATIONS:
                    charged[broker, key.value, sensor].append(event)
        met = {name: _met(name[1], each) for name, each in charged.items()}
        mutated: dict[Name, list[Mutation]] = defaultdict(list)
        for mutation in self.mutations:
            sensor = counter(QuotaKey.CONTROLLER_MUTATION_RATE, mutation.user, mutation.client_id)
            if sensor is not None and mutation.time_ms >= start:
                mutated["", QuotaKey.CONTROLLER_MUTATION_RATE.value, sensor].append(mutation)
        return met | {name: _mutated(each, self._partitions(name)) for name, each in mutated.items()}

    @cached_property
    def mutations(self) -> Sequence[Mutation]:
        """The answers to requests that create topics, as clients got them: the throttle time is in the answer."""
        found = []
        for path in self.logs.values():
            with gzip.open(path, "rt", encoding="utf-8") as lines:
                for line in lines:
                    if '"isForwarded":false' in line and '"requestApiKeyName":"CREATE_TOPICS"' in line:
                        request = json.loads(line[line.index("{") : line.rindex("}") + 1])
                        found.append(
                            Mutation(
                                parse(line, UTC).event.time_ms,
                                request["principal"].partition(":")[2],
                                request["requestHeader"]["clientId"],
                                request["response"]["throttleTimeMs"],
                            )
                        )
        return found

    def _partitions(self, name: Name) -> list[tuple[float, float]]:
        """When the clients of a counter had created how many partitions, by their own account."""
        start = self.facts["started_ms"]
        return [
            (start + 1000.0 * second, float(count))
            for each in self._clients(name)
            for second, count in enumerate(each["per_s"])
            if count
        ]

    def _clients(self, name: Name) -> list[Mapping[str, Any]]:
        """The facts of the clients of a counter."""
        user, _, client_id = name[2].partition(":")
        clients = self.facts["clients"].values()
        return [each for each in clients if user in ("", each["user"]) and client_id in ("", each["client_id"])]

    def done_ms(self, name: Name, met: Met) -> float | None:
        """When the clients of a counter had all they wanted, ms after the first request; None if not before the end.

        A producer without acknowledgements does not know; its last request does.
        """
        mine = self._clients(name)
        got, wanted = sum(each["delivered_records"] for each in mine), sum(each["wanted_records"] for each in mine)
        if any(each["wanted_records"] < 0 for each in mine):  # clients that share the partitions of a topic
            wanted = self.facts["clients"][SHARED]["wanted_records"]
        if got < wanted and any(each["done_ms"] is None for each in mine):
            return None
        if name[1] == QuotaKey.PRODUCER_BYTE_RATE.value or len(self.logs) > 1:
            # Of several brokers a client knows when it is done with all; the log knows it of each.
            return met.last_ms - met.begun_ms
        last = max(each["done_ms"] or each["last_ms"] for each in mine)
        return float(self.facts["started_ms"] + last - met.begun_ms)


def _met(key: str, events: Sequence[UsageEvent]) -> Met:
    # A consumer that waits gets empty answers; they are not what it wants.
    least = EMPTY_BYTES if key == QuotaKey.CONSUMER_BYTE_RATE.value else 0
    moved = [(float(event.time_ms), float(event.bytes)) for event in events if event.bytes > least]
    return _of([event.time_ms for event in events], [event.throttle_ms or 0 for event in events], moved)


def _mutated(mutations: Sequence[Mutation], created: Sequence[tuple[float, float]]) -> Met:
    return _of([each.time_ms for each in mutations], [each.throttle_ms for each in mutations], created)


def _of(times: Sequence[float], throttles: Sequence[int], moved: Sequence[tuple[float, float]]) -> Met:
    return Met(
        throttled=sum(ms > 0 for ms in throttles),
        total_ms=sum(throttles),
        longest_ms=max(throttles),
        begun_ms=min(times),
        ended_ms=max(times),
        last_ms=max((at for at, _ in moved), default=max(times)),
        units=tuple(moved),
        active_s=len({at // 1000 for at in times}),
        throttled_s=len({at // 1000 for at, ms in zip(times, throttles, strict=True) if ms > 0}),
    )


def audit(recording: Recording, quotas: Path, recorded_under: Path | None, *more: str) -> Mapping[str, Any]:
    """What `kquota audit -o json` prints about a recording under some quotas."""
    from kquota.cli.main import cli

    arguments = ["audit", *map(str, recording.logs.values()), "--quotas", str(quotas), "-o", "json", *more]
    if recorded_under is not None:
        arguments += ["--recorded-under", str(recorded_under)]
    done = CliRunner().invoke(cli, arguments, standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    document: Mapping[str, Any] = json.loads(done.stdout)
    return document


def compare(kind: str, before: Recording, after: Recording, again: Recording | None, *more: str) -> Question:
    """Predicts from `before` what the quotas of `after` do, and holds it against `after`."""
    document = audit(before, after.quotas, before.quotas, *more)
    with _ending(before.facts["started_ms"] + after.facts["end_ms"]):
        ended = audit(before, after.quotas, before.quotas, *more)["findings"]
    cut = {_name(each, [*before.logs]): each for each in ended}
    met, seen = after.met(after.quotas), before.met(after.quotas)
    second = {} if again is None else again.met(after.quotas)
    counters = []
    for finding in document["findings"]:
        name = _name(finding, [*before.logs])
        real = met.get(name)
        if real is None:
            continue  # connections, of which a log shows the accepted ones only
        base = seen.get(name, real)
        floor = second.get(name)
        counters.append(
            Counter(
                broker=name[0],
                key=name[1],
                sensor=name[2],
                limit=float(finding["limit"]),
                predicted=_shown(finding.get("predicted")),
                open_ms=finding["throttle_time_ms"],
                total_ms=real.total_ms,
                longest_ms=real.longest_ms,
                throttled=real.throttled,
                delivered_per_s=real.rate(base.seconds),
                done_ms=after.done_ms(name, real),
                end_ms=after.facts["started_ms"] + after.facts["end_ms"] - real.begun_ms,
                cut_ms=_cut(finding, cut[name]),
                again=None
                if floor is None
                else Measured(
                    total_ms=floor.total_ms,
                    longest_ms=floor.longest_ms,
                    delivered_per_s=floor.rate(base.seconds),
                    done_ms=None if again is None else again.done_ms(name, floor),
                ),
            )
        )
    return Question(kind, before.folder.name, after.folder.name, tuple(counters))


@contextmanager
def _ending(end_ms: float) -> Iterator[None]:
    """Lets simulations of recorded clients end at a time, epoch ms: no later than the real run did."""
    whole = recorded._Account.horizon_ms

    def horizon_ms(account: Any, *met: Any) -> int:
        horizon = min(whole(account, *met), round(end_ms))
        return int(max(horizon, account.counter.end_ms))

    with patch.object(recorded._Account, "horizon_ms", horizon_ms):
        yield


def _cut(finding: Mapping[str, Any], cut: Mapping[str, Any]) -> Mapping[str, float | None] | None:
    """The throttle time of the simulation that was cut; None where nothing was simulated, so that nothing was cut."""
    name = "throttle_time_ms"
    if not finding.get("predicted") or finding["predicted"][name] == cut["predicted"][name]:
        return None
    found: Mapping[str, float | None] = cut["predicted"][name]
    return found


def _shown(predicted: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """What the tables need of a prediction."""
    return None if predicted is None else {name: predicted[name] for name in SHOWN}


def _name(finding: Mapping[str, Any], logs: Sequence[str]) -> Name:
    """The counter of a finding. The audit of a single file has no name for its broker."""
    if finding["key"] == QuotaKey.CONTROLLER_MUTATION_RATE.value:
        return "", finding["key"], finding["sensor"]
    return finding["broker"] or logs[0], finding["key"], finding["sensor"]


def measure(folder: Path, only: str = "", *more: str) -> list[Question]:
    """All questions for which the folder has recordings; or the one `BEFORE:AFTER`."""
    names = {name for _, *pair in QUESTIONS for name in pair}
    runs = {
        name: Recording(folder / name)
        for name in (*names, *(f"{name}-2" for name in names))
        if (folder / name / "facts.json").exists()
    }
    found = []
    for kind, before, after in QUESTIONS:
        if only in ("", f"{before}:{after}") and before in runs and after in runs:
            found.append(compare(kind, runs[before], runs[after], runs.get(f"{after}-2"), *more))
            print(f"{kind}: {before} to {after}", file=sys.stderr)
    return found


def recommendations(recording: Recording, form: str) -> str:
    """What `kquota recommend` prints about a recording: `json`, or `yaml`, which is a file of quotas."""
    from kquota.cli.main import cli

    arguments = ["recommend", *map(str, recording.logs.values()), "--quotas", str(recording.quotas)]
    arguments += ["--entities", "user-clients", "-o", form]
    done = CliRunner().invoke(cli, arguments, standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.stdout


def recommend(before: Recording, after: Recording) -> Recommended:
    """What `kquota recommend` promises from one recording, and what became of it in a run under what it recommends."""
    met = after.met(after.quotas)
    promises = []
    for found in json.loads(recommendations(before, "json"))["recommendations"]:
        user, client_id = found["entity"]["user"], found["entity"]["client-id"]
        mine = [each for name, each in met.items() if name[1:] == (found["key"], f"{user}:{client_id}")]
        if not mine:
            continue  # what it recommends was not in force
        worst = max(mine, key=lambda each: each.throttled_s / max(each.active_s, 1))
        promised = found["throttled"]["predicted"]
        figures = (promised, worst.throttled_s, worst.active_s)
        promises.append(Promise(user, client_id, found["key"], float(found["value"]), *figures))
    return Recommended(before.folder.name, tuple(promises))


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.accuracy.pairs.measure", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, help="where the figures go, as JSON")
    parser.add_argument("--only", default="", metavar="BEFORE:AFTER", help="one question instead of all")
    options = parser.parse_args(argv)
    recommended = [
        recommend(Recording(options.folder / name), Recording(options.folder / f"recommended-{name}"))
        for name in ("none", "tight")
        if not options.only and (options.folder / f"recommended-{name}" / "facts.json").exists()
    ]
    figures = Figures(tuple(measure(options.folder, options.only)), tuple(recommended))
    if options.out is not None:
        text = json.dumps(figures_document(figures), separators=(",", ":")) + "\n"
        options.out.write_text(text, encoding="utf-8")
    print(page(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
