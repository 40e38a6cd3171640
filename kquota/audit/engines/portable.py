"""Values as bytes for files, pipes and other processes: data, and nothing that could run when it is read.

    VERSION | the length of the head (8 bytes) | the head | the blocks, each at a multiple of 8 bytes

The head is JSON: the value, and the lengths of the blocks, which are the contents of arrays. An object in it is
{"what it is": its parts}. Classes are named, and only records and enumerations of kquota's own data are made again: by
their fields, without calling any code of theirs.
"""

from __future__ import annotations

import enum
import json
from array import array
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from importlib import import_module
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pyarrow as pa

VERSION: Final = b"kquota 1"
"""The first bytes, which change with what follows."""
_MODULES: Final = ("kquota.audit.", "kquota.core.", "kquota.metrics.")
_MANY: Final = 1_000
"""An array of so many whole numbers is kept as what is above the least of them, which often takes half the bytes."""
_LEAVES: Final = frozenset({str, int, float, bool, type(None)})
_MAPPINGS: Final[dict[str, Callable[[dict[Any, Any]], Any]]] = {
    "dict": dict,
    "view": MappingProxyType,
    "counts": Counter,
}
_COLLECTIONS: Final[dict[str, Callable[[list[Any]], Any]]] = {"tuple": tuple, "set": set, "frozenset": frozenset}
_NAMES: Final[dict[Any, str]] = {made: name for name, made in [*_MAPPINGS.items(), *_COLLECTIONS.items()]}


def encode(value: Any) -> bytes:
    """The bytes of a value. Raises TypeError for one that is not data."""
    blocks: list[Any] = []
    tree = _tree(value, blocks)
    head = json.dumps([tree, [len(block) for block in blocks]], separators=(",", ":")).encode()
    parts = [VERSION, len(head).to_bytes(8, "little")]
    for block in (head, *blocks):
        parts += [block, bytes(-len(block) % 8)]
    return b"".join(parts)


def decode(data: Any) -> Any:
    """The value that `encode` made bytes of. Raises ValueError for other bytes."""
    view = memoryview(data).cast("B")
    if bytes(view[:8]) != VERSION:
        raise ValueError("not written by this version of kquota")
    try:
        place = 16 + int.from_bytes(view[8:16], "little")
        head = bytes(view[16:place]).decode()
        blocks: list[Any] = []
        # The lengths stand behind the value that needs the blocks.
        for length in json.loads(head[head.rindex("[") : -1]):
            place += -place % 8
            blocks.append(view[place : place + length])
            place += length
        if place > len(view):
            raise ValueError("its end is missing")
        return json.loads(head, object_hook=lambda tagged: _value(tagged, blocks))[0]
    except ValueError:
        raise
    except Exception as error:  # whatever damaged bytes end in
        raise ValueError(f"damaged ({type(error).__name__}: {error})") from None


def _tree(value: Any, blocks: list[Any]) -> Any:
    kind = type(value)
    if kind in _LEAVES:
        return value
    if kind is list:
        return value if set(map(type, value)) <= _LEAVES else [_tree(member, blocks) for member in value]
    if kind in (tuple, set, frozenset):
        return {_NAMES[kind]: _tree(list(value), blocks)}
    if kind in (dict, MappingProxyType, Counter):
        return {_NAMES[kind]: [_tree(list(value), blocks), _tree(list(value.values()), blocks)]}
    if kind is np.ndarray and not value.dtype.hasobject:
        flat = np.ascontiguousarray(value).reshape(-1)
        if value.dtype == np.int64 and len(flat) >= _MANY:
            low, high = int(flat.min()), int(flat.max())
            narrow = np.min_scalar_type(high - low)
            if narrow.itemsize < value.itemsize:
                above = np.subtract(flat, low, out=np.empty(len(flat), narrow), casting="unsafe")
                return {"above": [_block(above.view(np.uint8), blocks), narrow.str, low, list(value.shape)]}
        return {"array": [_block(flat.view(np.uint8), blocks), value.dtype.str, list(value.shape)]}
    if kind is array:
        return {"numbers": [_block(memoryview(value).cast("B"), blocks), value.typecode]}
    if kind in (bytes, bytearray):
        return {kind.__name__: _block(value, blocks)}
    if kind is pa.Table:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, value.schema) as writer:
            writer.write_table(value)
        return {"table": _block(memoryview(sink.getvalue()), blocks)}
    if isinstance(value, np.generic):
        return value.item()
    name = f"{kind.__module__}:{kind.__qualname__}"
    try:
        _class(name)
    except (ValueError, AttributeError):
        raise TypeError(f"{name} is not data") from None
    if isinstance(value, enum.Enum):
        return {"choice": [name, value.name]}
    if isinstance(value, tuple):
        return {"record": [name, [_tree(member, blocks) for member in value]]}
    return {"record": [name, [_tree(member, blocks) for member in _getter(name)(value)]]}


def _block(data: Any, blocks: list[Any]) -> int:
    blocks.append(data)
    return len(blocks) - 1


def _value(tagged: Mapping[str, Any], blocks: list[Any]) -> Any:
    ((what, parts),) = tagged.items()
    if what in _COLLECTIONS:
        return _COLLECTIONS[what](parts)
    if what in _MAPPINGS:
        return _MAPPINGS[what](dict(zip(*parts, strict=True)))
    match what:
        case "record":
            name, values = parts
            made = _class(name)
            if issubclass(made, tuple):
                return tuple.__new__(made, values)
            record = object.__new__(made)
            for field, member in zip(_fields(made), values, strict=True):
                object.__setattr__(record, field, member)
            return record
        case "choice":
            return _class(parts[0])[parts[1]]
        case "array":
            block, kind, shape = parts
            # A copy is aligned, and may be written to.
            return np.frombuffer(blocks[block], np.dtype(kind)).reshape(shape).copy()
        case "above":
            block, kind, low, shape = parts
            return np.add(np.frombuffer(blocks[block], np.dtype(kind)), low, dtype=np.int64).reshape(shape)
        case "numbers":
            return array(parts[1], bytes(blocks[parts[0]]))
        case "bytes":
            return bytes(blocks[parts])
        case "bytearray":
            return bytearray(blocks[parts])
        case "table":
            return pa.ipc.open_stream(pa.py_buffer(blocks[parts])).read_all()
    raise ValueError(f"{what!r} is not known")


@lru_cache(1024)
def _class(name: str) -> Any:
    """The class of that name, if it is one of data."""
    module, _, within = name.partition(":")
    if not name.startswith(_MODULES):
        raise ValueError(f"{name} is not data of kquota")
    kind = attrgetter(within)(import_module(module))
    if not (isinstance(kind, type) and (is_dataclass(kind) or issubclass(kind, (tuple, enum.Enum)))):
        raise ValueError(f"{name} is not data")
    if kind.__module__ != module:
        raise ValueError(f"{name} is defined elsewhere")
    return kind


@lru_cache(1024)
def _fields(made: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(made))


@lru_cache(1024)
def _getter(name: str) -> Callable[[Any], tuple[Any, ...]]:
    names = _fields(_class(name))
    return attrgetter(*names) if len(names) > 1 else lambda value: tuple(getattr(value, name) for name in names)
