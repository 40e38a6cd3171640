"""What brokers themselves answered to clients while usage was recorded, whatever quotas are tried on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Answered(NamedTuple):
    """Requests of one kind, of one client on one broker."""

    broker: str
    user: str
    client_id: str
    requests: str
    """`produce`, `fetch` or `other`."""

    @property
    def client(self) -> tuple[str, str]:
        """(user, client-id)."""
        return self.user, self.client_id


class Answers(NamedTuple):
    """The throttle times in the brokers' answers to some requests."""

    events: int
    """The requests whose throttle time is known."""
    throttled_events: int
    throttle_time_max_ms: int
    first_throttled_ms: int | None
    """When the first throttled request was charged, epoch ms; None without one."""
    last_throttled_ms: int | None

    def __add__(self, other: object) -> Answers:
        if not isinstance(other, Answers):
            return NotImplemented
        firsts = [answers.first_throttled_ms for answers in (self, other) if answers.first_throttled_ms is not None]
        lasts = [answers.last_throttled_ms for answers in (self, other) if answers.last_throttled_ms is not None]
        return Answers(
            self.events + other.events,
            self.throttled_events + other.throttled_events,
            max(self.throttle_time_max_ms, other.throttle_time_max_ms),
            min(firsts, default=None),
            max(lasts, default=None),
        )


AnswersOf = Mapping[Answered, Answers]


def add_up(parts: Iterable[AnswersOf]) -> dict[Answered, Answers]:
    """The answers in all parts of a recording, in the order of their names."""
    whole: dict[Answered, Answers] = {}
    for part in parts:
        for name, answers in part.items():
            known = whole.get(name)
            whole[name] = answers if known is None else known + answers
    return dict(sorted(whole.items()))


def by_harm(answers: AnswersOf) -> list[tuple[Answered, Answers]]:
    """The longest throttle time first, then the greatest number of throttled requests, then by name."""
    return sorted(answers.items(), key=lambda item: (-item[1].throttle_time_max_ms, -item[1].throttled_events, item[0]))
