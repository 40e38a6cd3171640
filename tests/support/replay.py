"""Replays files of recorded answers through kquota and says whether they are equal.

    python -m tests.support.replay FILE [--types produce,fetch,...] [--plain]

FILE (`.json` or `.json.gz`) holds event sequences (`vectors` with a `type`) or resolution cases (`vectors` with
`cases`). Every key of `expected` and of `debug_readout` is compared, exactly. The last line is `N of M equal`; the exit
code is 0 only when all are equal and there was at least one, 1 otherwise, 2 for a wrong call or an unreadable file. A
type that is not implemented is never equal; with --types, only the types named are replayed and counted.
"""

import argparse
import gzip
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kquota.core.enforcement import Kernel, Mode, kernel
from tests.support.vectors import REPLAYS, RESOLUTION, compare, compare_resolution, generation_of, type_of


def load(path: Path) -> Mapping[str, Any]:
    """The document, plain or gzipped whatever its name."""
    data = path.read_bytes()
    document: Mapping[str, Any] = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    return document


def replay_document(
    document: Mapping[str, Any], using: Kernel, types: frozenset[str] | None = None
) -> tuple[Counter[str], Counter[str], list[str]]:
    """(equal per type, total per type, what differs); without `types`, all types of the document count."""
    generation = generation_of(document)
    equal: Counter[str] = Counter()
    total: Counter[str] = Counter()
    differences = []
    for vector in document["vectors"]:
        kind = type_of(vector)
        if types is not None and kind not in types:
            continue
        total[kind] += 1
        if kind != RESOLUTION and kind not in REPLAYS:
            continue
        try:
            check = compare_resolution if kind == RESOLUTION else compare
            difference: object = check(vector, generation, using)
        except Exception as error:  # one sequence that cannot be replayed must not hide the others
            difference = f"{type(error).__name__}: {error}"
        if difference is None:
            equal[kind] += 1
        else:
            differences.append(f"{vector.get('id')}: {difference}")
    return equal, total, differences


def report(equal: Counter[str], total: Counter[str], differences: Sequence[str]) -> Iterable[str]:
    for kind, count in total.items():
        supported = kind == RESOLUTION or kind in REPLAYS
        yield f"{kind}: {equal[kind]} of {count} equal" if supported else f"{kind}: {count} not supported yet"
    if differences:
        yield f"first difference: {differences[0]}"
    yield f"{equal.total()} of {total.total()} equal"


def main(arguments: Sequence[str] | None = None) -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(prog="python -m tests.support.replay", description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--types", help="only these types, separated by commas", metavar="TYPES")
    parser.add_argument("--plain", action="store_true", help="without numba, also where it is installed")
    options = parser.parse_args(arguments)
    types = None
    if options.types is not None:
        types = frozenset(name.strip() for name in options.types.split(","))
        unknown = sorted(types - REPLAYS.keys() - {RESOLUTION})
        if unknown:
            parser.error(f"not supported: {', '.join(unknown)} (there are {', '.join([*REPLAYS, RESOLUTION])})")
    using = kernel(Mode.PLAIN if options.plain else Mode.AUTO)
    try:
        equal, total, differences = replay_document(load(options.file), using, types)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        parser.error(f"cannot read {options.file}: {type(error).__name__}: {error}")
    print("\n".join(report(equal, total, differences)))
    return 0 if equal == total and total else 1


if __name__ == "__main__":
    sys.exit(main())
