"""A topic of usage records that is followed: what came in each partition since the last look."""

from dataclasses import dataclass, field
from typing import Any

from kquota.audit.follow.tail import Followed, Increment, Tail
from kquota.audit.sources import usage_topic


@dataclass
class TopicTail(Tail):
    """The partitions of the topic `paths[0]`, from look to look, by a client of these librdkafka settings.

    A partition is a file of records: it grows, and its offsets count in records. Transactions show when they end.
    The first look waits at most `timeout_s` for each answer. Later looks are more patient: a broker may restart.
    """

    kafka: dict[str, Any] = field(default_factory=dict, repr=False)
    timeout_s: float = 10.0
    _met: bool = False

    def look(self, *, last: bool = False) -> list[Increment]:
        """What came since the last look. Raises InputError for a topic that is not there, Unreachable."""
        (topic,) = self.paths
        known = {each.path: each for each in self.files}
        with usage_topic.consuming(self.kafka) as (consumer, kafka):
            patience_s = max(self.timeout_s, usage_topic.PATIENCE_S) if self._met else self.timeout_s
            ends = usage_topic.ends(topic, consumer, kafka, patience_s)
        self._met = True
        increments = []
        for partition, (first, end) in ends.items():
            each = known.get(f"{topic}/{partition}")
            if each is None:
                if first == end:
                    continue
                path = f"{topic}/{partition}"
                each = Followed(len(self.files), path, (0, partition), usage_topic.DIALECT, True, offset=first)
                self.files.append(each)
            self.lost_bytes += max(first - each.offset, 0)
            each.offset = max(each.offset, first)
            each.size = max(end, each.offset)
            splits = usage_topic.pieces(topic, partition, each.offset, each.size)
            increments += [Increment(each, split) for split in splits]
        self.order = [each.number for each in sorted(self.files, key=lambda each: each.identity)]
        return increments

    def brokers(self) -> list[str]:
        """Empty names: the records name their brokers."""
        return [""] * len(self.files)

    @property
    def lost(self) -> str | None:
        """What was deleted before it was read."""
        return f"{self.lost_bytes:,} records were deleted before they were read" if self.lost_bytes else None

    def check(self) -> None:
        """Raises InputError where the topic is not there or empty, and Unreachable."""
        usage_topic.plan_topic(self.paths[0], self.kafka, self.timeout_s)

    def took(self, increment: Increment) -> None:
        """Notes that an increment was read."""
        increment.file.offset = increment.split.end
