"""Why a counter is throttled or near it: since when, who is loudest in it, what would be enough, and what lifts it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kquota.core.findings.use import Counter, Enforcers, State, Use
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey, Value, check_value
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.core.resolve.resolver import Sensor
from kquota.documents.quotas import quotas_document
from kquota.errors import KquotaError
from kquota.live.sources import Prometheus, Sample
from kquota.live.watching import View
from kquota.metrics.series import IDENTITY, Nature

_NOT_FROM_METRICS: Final = "from metrics, for clients are held back: 'kquota audit' of the request log shows it"
_NOT_FROM_LOG: Final = "from a request log, which lacks some of what the counter is charged"


class Loud(NamedTuple):
    """A client in the counter, and what a log or a finer series of the same broker says about it."""

    client: Sensor
    key: QuotaKey
    rate: float


@dataclass(frozen=True)
class Explanation:
    """All that is known about one counter of one broker."""

    use: Use
    since_ms: int | None
    """From when on requests are delayed without a pause; None where nothing says so."""
    since_unknown: str | None
    """Why it is not known since when."""
    loudest: tuple[Loud, ...]
    enough: float | None
    """A limit under which the present rate is not near; of a log, under which nobody would have been delayed.

    None where the source cannot say, as clients are held back.
    """
    enough_at_least: bool
    """Whether `enough` is a lower bound: clients that were held back may want more."""
    enough_unknown: str = ""
    """Why it is not known what would be enough, where it is not."""


def explain(use: Use, view: View, source: object, brokers: Enforcers) -> Explanation:
    """The explanation of one of the uses of a view."""
    episode = view.look.episodes.get(use.counter)
    if episode is not None and use.state is State.THROTTLED:
        loudest = tuple(_loudest(use, view))
        return Explanation(use, episode.begin_ms, None, loudest, episode.enough, episode.at_least)
    since, why_not = _since(use, view, source)
    rate = use.observed.rate
    enough = None if use.state is State.THROTTLED or rate is None else rate / brokers.near
    from_log = use.observed.clients is not None
    unknown = _NOT_FROM_LOG if from_log else _NOT_FROM_METRICS
    return Explanation(use, since, why_not, tuple(_loudest(use, view)), enough, use.observed.at_least, unknown)


def _loudest(use: Use, view: View) -> Sequence[Loud]:
    """The clients of the counter, the greatest rate first: as a log shows them, else by their own series.

    Of the counter's own key no finer series exists; thread time is the best other measure, so its series come first.
    """
    if use.observed.clients is not None:
        return [Loud(share.client, use.counter.key, share.rate) for share in use.observed.clients]
    keys = (QuotaKey.REQUEST_PERCENTAGE, *QuotaKey)
    mine = set(use.clients)
    found = [
        Loud(other.counter.sensor, other.counter.key, other.observed.rate)
        for other in view.uses
        if other.counter.broker == use.counter.broker
        and other.counter.sensor in mine
        and other.counter.key is not QuotaKey.CONNECTION_CREATION_RATE
        and other.observed.rate is not None
    ]
    key = next((key for key in keys if any(each.key is key for each in found)), None)
    return sorted((each for each in found if each.key is key), key=lambda each: -each.rate)


def _since(use: Use, view: View, source: object) -> tuple[int | None, str | None]:
    if use.state is not State.THROTTLED:
        return None, None
    if use.observed.clients is not None:
        return None, "the log shows that the broker throttles, and not how much the counter is charged"
    if not isinstance(source, Prometheus):
        return None, "pages of metrics have no past: --prometheus URL looks back"
    sample = next(
        (each for each in view.look.samples if each.series.nature is Nature.THROTTLE and _counter(each) == use.counter),
        None,
    )
    if sample is None:
        return None, "the source has no throttle time of it"
    try:
        readings = source.past(_selector(sample.labels), sample.series)
    except KquotaError as error:
        return None, error.message
    return last_run(readings), None


def last_run(readings: Sequence[tuple[int, float]]) -> int | None:
    """When the last run of readings above 0 began; None where the last reading is 0. Readings are (epoch ms, value)."""
    begin = None
    for time_ms, value in sorted(readings):
        begin = (time_ms if begin is None else begin) if value > 0 else None
    return begin


def _counter(sample: Sample) -> Counter:
    series = sample.series
    return Counter(series.broker, series.key, series.user or "", series.client_id or "")


def _selector(labels: Mapping[str, str]) -> str:
    wanted = {name: labels.get(name, "") for name in (*IDENTITY, "instance", "broker", "pod")}
    matchers = ",".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in wanted.items())
    return f"{labels['__name__']}{{{matchers}}}"


def lift(use: Use) -> Entity:
    """The entity whose quota lifts this counter and no other: its tags by name, whatever default governs it now."""
    counter = use.counter
    if counter.key is QuotaKey.CONNECTION_CREATION_RATE:
        return Entity(ip=counter.client_id)
    return Entity(user=counter.user or None, client_id=counter.client_id or None)


def lifted(use: Use) -> Value:
    """Twice the limit, within the key's type."""
    assert use.limit is not None
    maximum = use.counter.key.value_type.maximum
    doubled = 2 * use.limit if maximum is None else min(2 * use.limit, maximum)
    return check_value(use.counter.key, doubled)


def lift_command(use: Use, address: Sequence[str]) -> str:
    """The command line that doubles the limit for two hours; `address` are the words that name the cluster."""
    # ASCII: names must not drive the terminal that shows the command.
    text = json.dumps(quotas_document(QuotaSnapshot({lift(use): {use.counter.key: lifted(use)}})))
    return f"echo {shlex.quote(text)} | kquota apply - --for 2h --yes{_words(address)}"


def undo_command(address: Sequence[str]) -> str:
    """The command line that takes it back at once, by the ID that the write printed: others may have written since."""
    return f"kquota undo ID{_words(address)}"


def _words(address: Sequence[str]) -> str:
    return "".join(f" {shlex.quote(word)}" for word in address)
