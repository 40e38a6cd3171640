"""Why a counter is throttled or near it: since when, who is loudest in it, what would be enough, and what lifts it."""

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kquota.core.findings.use import Enforcers, State, Use
from kquota.core.quotas.entity import DEFAULT, Entity, EntityType
from kquota.core.quotas.quota import QuotaKey, Value, check_value
from kquota.core.resolve.resolver import Resolver, Sensor, encode_user, tagged
from kquota.core.tabular import grouped
from kquota.documents.quotas import value_text
from kquota.errors import KquotaError
from kquota.live.sources import Prometheus
from kquota.live.watching import View
from kquota.metrics.series import IDENTITY, Nature

_NOT_FROM_METRICS: Final = "more than the limit; how much more, no metric tells of clients that are held back"
_NOT_FROM_LOG: Final = "cannot be told: the log lacks some of what the counter is charged"


class Loud(NamedTuple):
    """A client in the counter, and what a log or a finer series of the same broker says about it."""

    client: Sensor
    key: QuotaKey
    rate: float


@dataclass(frozen=True)
class Explanation:
    """All that is known about one counter, on all brokers that have it."""

    uses: tuple[Use, ...]
    """One of each broker, the worst first."""
    since_ms: int | None
    """From when on requests are delayed without a pause on a broker; None where nothing says so."""
    since_unknown: str | None
    """Why it is not known since when."""
    loudest: tuple[Loud, ...]
    enough: float | None
    """A limit under which the present rate is near it on no broker; of a log, under which nobody would be delayed.

    None where the source cannot say, as clients are held back.
    """
    enough_at_least: bool
    """Whether `enough` is a lower bound: clients that were held back may want more."""
    enough_unknown: str = ""
    """Why it is not known what would be enough, where it is not."""


def concerning(wanted: Entity, view: View, brokers: Enforcers) -> tuple[tuple[Use, ...], tuple[Use, ...]]:
    """The uses that hold requests of the subject, the throttled first; then the uses that may hold some.

    A client is charged to a counter by its user and client-id. Where the subject has only one of them, a log or finer
    series of the same broker name the members of a counter.
    """
    resolvers = {key: Resolver.of(view.quotas, key, brokers.static) for key in QuotaKey}

    def member(use: Use, user: object, client_id: object) -> bool:
        name = encode_user(user) if isinstance(user, str) else None
        return any(
            (name is None or client.user == name) and (client_id is None or client.client_id == client_id)
            for client in use.clients
        )

    def charged(use: Use, user: str, client_id: str) -> bool:
        return resolvers[use.counter.key].resolve(user, client_id).sensor == use.counter.sensor

    holds, may_hold = [], []
    for use in view.uses:
        counter, user, client_id = use.counter, wanted.user, wanted.client_id
        if wanted.ip is not None or counter.key is QuotaKey.CONNECTION_CREATION_RATE:
            if wanted.ip is not None and counter.subject == str(wanted):
                holds.append(use)
        elif DEFAULT in (user, client_id):
            if use.entity == wanted:
                holds.append(use)
        elif all(tag in (None, name) for tag, name in ((user, counter.user), (client_id, counter.client_id))):
            holds.append(use)
        elif isinstance(user, str) and isinstance(client_id, str):
            if charged(use, user, client_id):
                holds.append(use)
        elif member(use, user, client_id):
            holds.append(use)
        elif not use.clients and charged(use, str(user or counter.user), str(client_id or counter.client_id)):
            may_hold.append(use)
    return tuple(holds), tuple(may_hold)


def together(uses: Iterable[Use]) -> list[tuple[Use, ...]]:
    """The uses of each counter, over all brokers, in the order of the worst."""
    return [*map(tuple, grouped(uses, lambda use: use.counter[1:]).values())]


def explain(uses: Sequence[Use], view: View, source: object, brokers: Enforcers) -> Explanation:
    """The explanation of the uses of one counter, the worst first."""
    worst = uses[0]
    loudest = tuple(_loudest(uses, view))
    if worst.state is State.THROTTLED:
        episodes = [view.look.episodes[use.counter] for use in uses if use.counter in view.look.episodes]
        if episodes:
            known = [episode.enough for episode in episodes if episode.enough is not None]
            at_least = any(episode.at_least for episode in episodes)
            begin = min(episode.begin_ms for episode in episodes)
            return Explanation(tuple(uses), begin, None, loudest, max(known, default=None), at_least)
    since, why_not = _since(worst, view, source)
    rates = [use.observed.rate for use in uses if use.observed.rate is not None]
    enough = None if worst.state is State.THROTTLED or not rates else max(rates) / brokers.near
    from_log = worst.observed.clients is not None
    unknown = _NOT_FROM_LOG if from_log else _NOT_FROM_METRICS
    at_least = any(use.observed.at_least for use in uses)
    return Explanation(tuple(uses), since, why_not, loudest, enough, at_least, unknown)


def _loudest(uses: Sequence[Use], view: View) -> Sequence[Loud]:
    """The clients of the counter, the greatest rate first: as a log shows them, else by their own series.

    Of the counter's own key no finer series exists; thread time is the best other measure, so its series come first.
    """
    loud = [Loud(share.client, use.counter.key, share.rate) for use in uses for share in use.observed.clients or ()]
    if all(use.observed.clients is None for use in uses):
        clients = {(use.counter.broker, client) for use in uses for client in use.clients}
        loud = [
            Loud(other.counter.sensor, other.counter.key, other.observed.rate)
            for other in view.uses
            if (other.counter.broker, other.counter.sensor) in clients
            and other.counter.key is not QuotaKey.CONNECTION_CREATION_RATE
            and other.observed.rate is not None
        ]
    keys = (QuotaKey.REQUEST_PERCENTAGE, *QuotaKey)
    key = next((key for key in keys if any(of is key for _, of, _ in loud)), None)
    rates: dict[Sensor, float] = {}
    for client, of, rate in loud:
        if key is not None and of is key:
            rates[client] = rates.get(client, 0.0) + rate
    return [Loud(client, key, rate) for client, rate in sorted(rates.items(), key=lambda pair: -pair[1]) if key]


def _since(use: Use, view: View, source: object) -> tuple[int | None, str | None]:
    if use.state is not State.THROTTLED:
        return None, None
    if use.observed.clients is not None:
        return None, "the log shows that the broker throttles, and not how much the counter is charged"
    if not isinstance(source, Prometheus):
        return None, "a metrics page has no history; use --prometheus"
    sample = next(
        (
            sample
            for sample in view.look.samples
            if sample.series.nature is Nature.THROTTLE and sample.series.counter == use.counter
        ),
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


def _selector(labels: Mapping[str, str]) -> str:
    wanted = {name: labels.get(name, "") for name in (*IDENTITY, "instance", "broker", "pod")}
    matchers = ",".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in wanted.items())
    return f"{labels['__name__']}{{{matchers}}}"


def lift(use: Use) -> Entity:
    """The entity whose quota lifts this counter and no other: its tags by name, whatever default governs it now."""
    return tagged(*use.counter[1:])


def lifted(use: Use) -> Value:
    """Twice the limit, within the key's type."""
    assert use.limit is not None
    maximum = use.counter.key.value_type.maximum
    doubled = 2 * use.limit if maximum is None else min(2 * use.limit, maximum)
    return check_value(use.counter.key, doubled)


def lift_command(use: Use, address: Sequence[str]) -> str:
    """The command line that doubles the limit for two hours; `address` are the words that name the cluster."""
    options = {EntityType.USER: "--user", EntityType.CLIENT_ID: "--client", EntityType.IP: "--ip"}
    # The name goes with its option in one word: it may begin with a dash.
    names = (f"{options[kind]}={name}" for kind, name in lift(use).parts)
    value = str(value_text(use.counter.key, lifted(use))).removesuffix("/s").replace(" ", "")
    return (
        f"kquota alter {' '.join(map(_word, names))} --add-config {use.counter.key}={value} --for 2h{_words(address)}"
    )


def record_command(address: Sequence[str]) -> str:
    """The command line that records the requests from which a limit that is enough follows; it needs a broker."""
    brokers = ("--bootstrap-server", "HOST:PORT")
    return f"kquota record --for 2m{_words(brokers if not address or '--zookeeper' in address else address)}"


def undo_command(address: Sequence[str]) -> str:
    """The command line that takes it back at once, by the ID that the write printed: others may have written since."""
    return f"kquota undo ID{_words(address)}"


def _words(address: Sequence[str]) -> str:
    return "".join(f" {_word(word)}" for word in address)


def _word(text: str) -> str:
    """A word for a shell; what is not printable ASCII is escaped for bash, so that it drives no terminal."""
    if text.isascii() and text.isprintable():
        return shlex.quote(text)
    escapes = "".join(
        char if char.isascii() and char.isprintable() and char not in "\\'" else f"\\U{ord(char):08x}" for char in text
    )
    return f"$'{escapes}'"
