"""What governs one client, as a tree: every key with its entity, counter, what it shadows, and what it comes to."""

from collections.abc import Iterator, Sequence

from kquota.cli.limits import on_brokers, source
from kquota.cli.tree import Branch
from kquota.core.findings.finding import subject
from kquota.core.quotas.quota import QuotaKey, limit_text
from kquota.core.resolve.caveat import Caveat
from kquota.core.resolve.resolver import Resolution


def explanation(
    user: str | None,
    client: str | None,
    ip: str | None,
    resolutions: Sequence[Resolution],
    brokers: int | None,
    caveats: Sequence[Caveat],
) -> Branch:
    """The tree of one client."""
    names = (("user", user), ("client-id", client), ("ip", ip))
    title = ", ".join(f"{kind} {name or '(empty)'}" for kind, name in names if name is not None)
    below = [_key(resolution, brokers) for resolution in resolutions]
    if caveats:
        below.append(Branch("but", [Branch(each.message) for each in caveats], "yellow"))
    return Branch(title, below, "bold")


def _key(item: Resolution, brokers: int | None) -> Branch:
    style = "" if item.limit is None else "cyan"
    return Branch(f"{item.key}: {limit_text(item.key, item.limit)}", list(_reasons(item, brokers)), style)


def _reasons(item: Resolution, brokers: int | None) -> Iterator[Branch]:
    if item.level is not None and item.limit is not None:
        yield Branch(f"from {source(item.key, item.entity)}: level {item.level.number}, {item.level.label}")
        if item.key is QuotaKey.CONTROLLER_MUTATION_RATE:
            yield Branch("in the whole cluster: the active controller counts")
        else:
            total = "" if brokers is None else f", on {brokers} brokers {on_brokers(item, brokers)}"
            yield Branch(f"on each broker {limit_text(item.key, item.limit)}{total}")
    if item.limit is not None:
        yield Branch(f"counter of {subject(item.key, str(item.sensor))}, charged by {_sharers(item)}")
    if item.shadows:
        yield Branch(
            "shadows",
            [
                Branch(
                    f"{source(item.key, other.entity)}: {limit_text(item.key, other.value)}, level"
                    f" {other.level.number}, {other.level.label}"
                )
                for other in item.shadows
            ],
            "dim",
        )
    if item.ignored:
        yield _ignored(item)


def _ignored(item: Resolution) -> Branch:
    return Branch(
        "not enforced",
        [
            Branch(f"{source(item.key, other.entity)}: {limit_text(item.key, other.value)}, {other.reason}")
            for other in item.ignored
        ],
        "yellow",
    )


def _sharers(item: Resolution) -> str:
    """Who is charged to the counter (`ClientQuotaManager`'s metric tags)."""
    if item.key is QuotaKey.CONNECTION_CREATION_RATE:
        return "this ip alone"
    if item.sensor.user:
        return "this user with this client-id" if item.sensor.client_id else "all clients of this user"
    return "all users with this client-id" if item.sensor.client_id else "all who send no client-id"
