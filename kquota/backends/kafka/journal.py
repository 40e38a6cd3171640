"""The journal of a cluster in a compacted topic of one partition: the order of its log arbitrates.

An entry is the last record of its key, which is its name and a token of its writer. A new entry takes part once its
record is in the log: of two with one number, the first one stays, and the writer of the other takes that back and tries
the next number. While a writer lives it repeats its record, so that everybody knows by the time of the last one.
"""

import contextlib
import secrets
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from kquota.backends import wire
from kquota.backends.kafka.codes import NONE, UNKNOWN_TOPIC
from kquota.backends.kafka.nodes import Nodes, pause_or_raise
from kquota.backends.kafka.records import batch_of, records_of
from kquota.backends.kafka.session import PAUSE_S
from kquota.core.change.journal_store import Draft, packed, unpacked
from kquota.errors import InputError, KquotaError, Unreachable

TOPIC: Final = "__kquota_journal"
_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    # Those who begin at the same time see each other's first records.
    "min.compaction.lag.ms": "60000",
    "message.timestamp.type": "LogAppendTime",
}
_REPLICAS: Final = 3
_RECORD_BYTES: Final = 1_000_000
_FETCH_BYTES: Final = 16 << 20
_HELD, _FREE = b"1", b"0"
_BEAT_S: Final = 5.0
ALIVE_S: Final = 20.0
"""A writer that was not heard of for so long has died."""


class _Own(NamedTuple):
    """An entry that this process writes."""

    key: str
    ended: threading.Event


class TopicJournal:
    """The entries in the topic; see `JournalStore`. `close` drops the connections."""

    sees_all_hosts = True
    mark = b""
    """All of the topic is read once anyway."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._alone = threading.RLock()
        self._next = 0
        self._records: dict[str, tuple[bytes, int]] = {}
        """The last value of each key and its time in ms, in the order of the first ones."""
        self._own: dict[str, _Own] = {}

    def close(self) -> None:
        for name in list(self._own):
            self._own.pop(name).ended.set()
        with self._alone:
            self._nodes.close()

    def names(self) -> list[str]:
        return list(self._entries())

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, bytes | InputError]]:
        entries = self._entries()
        for name in names:
            if name in entries:
                yield name, unpacked(entries[name][1:])

    def create(self, draft: Draft) -> None:
        token = secrets.token_hex(8)
        taken: list[str] = []
        while True:
            name, data, most = draft([*self.names(), *taken])
            key, value = f"{name} {token}", _HELD + packed(data, most, _RECORD_BYTES)
            self._write(key, value)
            self._entries()
            number = _number(name)
            with self._alone:
                first = next(record for record in self._records if _number(record.partition(" ")[0]) == number)
            if first == key:
                break
            self._write(key, None)
            taken.append(first.partition(" ")[0])
        own = self._own[name] = _Own(key, threading.Event())
        threading.Thread(target=self._beat, args=(own, value), daemon=True).start()

    def replace(self, name: str, data: bytes) -> None:
        self._end(name, packed(data, len(data), _RECORD_BYTES))

    def release(self, name: str) -> None:
        with contextlib.suppress(KquotaError):
            if name in self._own:
                self._end(name, self._entries()[name][1:])

    def is_held(self, name: str) -> bool:
        self._entries()
        with self._alone:
            key = self._key(name)
            value, time_ms = self._records.get(key or "", (_FREE, 0))
        return value[:1] == _HELD and time.time() - time_ms / 1000 < ALIVE_S

    def remove(self, names: Iterable[str]) -> None:
        gone = set(names)
        self._entries()
        for key in [record for record in self._records if record.partition(" ")[0] in gone]:
            self._write(key, None)

    def _end(self, name: str, value: bytes) -> None:
        """Writes the last word of a writer, after which it is not heard of any more."""
        self._entries()
        own = self._own.pop(name, None)
        if own is not None:
            own.ended.set()
        key = own.key if own is not None else self._key(name)
        if key is None:
            raise InputError(f"the entry {name} is gone from the topic {TOPIC}")
        self._write(key, _FREE + value)

    def _beat(self, own: _Own, value: bytes) -> None:
        """Repeats the record of an entry until its end."""
        while not own.ended.wait(_BEAT_S):
            with contextlib.suppress(KquotaError), self._alone:
                if not own.ended.is_set():
                    self._write(own.key, value)

    def _key(self, name: str) -> str | None:
        return next((key for key in self._records if key.partition(" ")[0] == name), None)

    def _entries(self) -> dict[str, bytes]:
        """The value of each entry by its name, as all have written them until now."""
        with self._alone:
            while (fetched := self._fetch()) is not None:
                for record in records_of(fetched.records or b""):
                    if record.offset < self._next:
                        continue
                    self._next = record.offset + 1
                    if record.value is None:
                        self._records.pop(record.key, None)
                    else:
                        self._records[record.key] = record.value, record.time_ms
                if self._next >= fetched.high_watermark or not fetched.records:
                    break
            entries: dict[str, bytes] = {}
            for key, (value, _) in self._records.items():
                entries.setdefault(key.partition(" ")[0], value)
            return entries

    def _fetch(self) -> Any | None:
        """What follows in the log; None where there is no topic."""
        part = wire.FetchPartition(0, -1, self._next, -1, _FETCH_BYTES)
        request = wire.FetchRequest(-1, 0, 0, _FETCH_BYTES, 0, 0, -1, [wire.FetchTopic(TOPIC, [part])])
        return self._ask(request, wire.FetchResponse, create=False)

    def _write(self, key: str, value: bytes | None) -> None:
        """Adds a record, which all in-sync replicas have then."""
        part = wire.ProducePartition(0, batch_of(key, value, round(time.time() * 1000)))
        request = wire.ProduceRequest(None, -1, 10_000, [wire.ProduceTopic(TOPIC, [part])])
        with self._alone:
            self._ask(request, wire.ProduceResponse, create=True)

    def _ask(self, request: Any, kind: type, *, create: bool) -> Any | None:
        """What the leader of the partition answers, whoever that is by now. Its requests bear being sent twice."""
        deadline = self._nodes.any.deadline()
        while True:
            topic = self._nodes.topic(TOPIC)
            if topic is None and not create:
                return None
            leader = -1 if topic is None else next((partition.leader_id for partition in topic.partitions), -1)
            code = UNKNOWN_TOPIC
            if topic is None:
                self._nodes.create_topic(TOPIC, _CONFIGS, replicas=_REPLICAS)
            elif leader >= 0:
                with self._nodes.asking(leader) as session:
                    (answer,) = session.ask([request], kind)
                if not answer.topics:  # a fetch that a quota throttles brings nothing
                    wait_s = max(answer.throttle_time_ms / 1000, PAUSE_S)
                    if deadline.left < wait_s + PAUSE_S:
                        held = f"a quota of this login holds back reads of topic {TOPIC!r} for {wait_s:g} s"
                        raise Unreachable(held, hint="try again then, or give --timeout more seconds")
                    time.sleep(wait_s)
                    continue
                (part,) = answer.topics[0].partitions
                if part.error_code == NONE:
                    return part
                code = part.error_code
            pause_or_raise(code, f"topic {TOPIC!r}", deadline)


def _number(name: str) -> str:
    """What names of entries end in, which none other has."""
    return name.removesuffix(".json").rpartition("-")[2]
