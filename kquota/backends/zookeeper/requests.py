"""What is asked of ZooKeeper at once: many reads in one request; how much servers can take of reads and transactions.

kazoo does not know opcode 22 (`MultiRead`, ZooKeeper 3.6): by it 10,000 nodes are read in 0.1 s, one by one in 2.6 s.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias

# A server drops the session on a request beyond jute.maxbuffer (1 MB by default) and says nothing but "connection
# lost": requests are counted before they are sent.
REQUEST_BYTES: Final = 512 * 1024
NODE_BYTES: Final = 1_000_000
READS_PER_REQUEST: Final = 1000
ENTITIES_PER_TRANSACTION: Final = 500
WINDOW: Final = 4
"""Bulk requests in flight."""
SINGLE_WINDOW: Final = 500
"""Requests about one node in flight."""
MAX_CONFLICTS: Final = 100
"""How often an entity may lose the race to another writer."""

GET_DATA, GET_CHILDREN, _MULTI_READ = 4, 8, 22
_NO_NODE = -101
_OP_HEADER = struct.Struct("!iBi")
_INT = struct.Struct("!i")
# czxid mzxid ctime mtime version cversion aversion ephemeralOwner dataLength numChildren pzxid
_STAT = struct.Struct("!8xq16xi20xi8x")

Read: TypeAlias = tuple[int, str]


class Acl(NamedTuple):
    """One entry of a node's ACL; the permissions are ZooKeeper's bits."""

    scheme: str
    id: str
    permissions: int


class Node(NamedTuple):
    """A node as read. Its data may be secret and is in no repr."""

    data: bytes | None
    version: int
    children: int
    mzxid: int = 0
    """The zxid of the transaction that wrote the data."""

    def __repr__(self) -> str:
        return f"Node(version={self.version}, children={self.children})"


_node: Callable[[tuple[bytes | None, int, int, int]], Node] = partial(tuple.__new__, Node)
Answer: TypeAlias = Node | list[str] | None
"""A node or the names of its children; None where there is no such node."""


class MultiRead:
    """Many reads in one request (ZOOKEEPER-1295). Quacks like a request class of kazoo's."""

    type = _MULTI_READ

    def __init__(self, reads: Sequence[Read], chroot: str) -> None:
        self._reads = reads
        self._chroot = chroot

    def serialize(self) -> bytes:
        parts: list[bytes] = []
        for opcode, path in self._reads:
            full = ((self._chroot + path).rstrip("/") or "/").encode()
            parts += (_OP_HEADER.pack(opcode, 0, -1), _INT.pack(len(full)), full, b"\0")
        parts.append(_OP_HEADER.pack(-1, 1, -1))
        return b"".join(parts)

    @staticmethod
    def deserialize(reply: bytes, offset: int) -> list[Answer | int]:
        """The answers in order; an int is ZooKeeper's error code."""
        answers: list[Answer | int] = []
        while True:
            opcode, done, _ = _OP_HEADER.unpack_from(reply, offset)
            offset += _OP_HEADER.size
            if done:
                return answers
            if opcode == GET_DATA:
                (length,) = _INT.unpack_from(reply, offset)
                start = offset + 4
                offset = start + length if length > 0 else start
                mzxid, version, children = _STAT.unpack_from(reply, offset)
                answers.append(_node((reply[start:offset] if length >= 0 else None, version, children, mzxid)))
                offset += _STAT.size
            elif opcode == GET_CHILDREN:
                (count,) = _INT.unpack_from(reply, offset)
                offset += _INT.size
                names = []
                for _ in range(count):
                    name, offset = _read_buffer(reply, offset)
                    names.append((name or b"").decode())
                answers.append(names)
            else:
                (code,) = _INT.unpack_from(reply, offset)
                offset += _INT.size
                answers.append(None if code == _NO_NODE else int(code))


def _read_buffer(reply: bytes, offset: int) -> tuple[bytes | None, int]:
    (length,) = _INT.unpack_from(reply, offset)
    start = offset + _INT.size
    return (None, start) if length < 0 else (reply[start : start + length], start + length)


def requests_of(reads: Sequence[Read], chroot: str) -> Iterator[Sequence[Read]]:
    """Cuts reads into requests of bounded count and bytes."""
    start = size = 0
    overhead = 3 * len(chroot) + 14
    for index, (_, path) in enumerate(reads):
        cost = 3 * len(path) + overhead  # at most three bytes of UTF-8 a character of a path
        if index > start and (index - start >= READS_PER_REQUEST or size + cost > REQUEST_BYTES):
            yield reads[start:index]
            start, size = index, 0
        size += cost
    if start < len(reads):
        yield reads[start:]
