"""What a worker knows of names and whole numbers, in tables that are asked for many of them at once."""

from collections.abc import Callable, Sequence
from hashlib import blake2b

import numpy as np

from kquota.audit.batch import Column, Int64s


def fingerprint(*parts: str) -> int:
    """64 bits, the same in every process; never negative, so that it can be a dictionary key and an array's value."""
    name = "\0".join(parts).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(name, digest_size=8).digest(), "little") >> 1


class Interner:
    """Small integers for strings, the same for the life of a worker."""

    def __init__(self) -> None:
        self.index: dict[str, int] = {}
        self.names: list[str] = []
        self._fingerprints = np.zeros(0, np.int64)

    def numbers(self, names: Sequence[str]) -> Int64s:
        """The numbers of the strings; of one at least, so that a column without any has something to point to."""
        return np.fromiter((self.number(name) for name in names or ("",)), np.int64, max(1, len(names)))

    def number(self, name: str) -> int:
        """The number of a string."""
        code = self.index.get(name)
        if code is None:
            code = self.index[name] = len(self.names)
            self.names.append(name)
        return code

    def column(self, codes: Int64s) -> Column:
        """The strings with these numbers."""
        used, own = np.unique(codes, return_inverse=True)
        return Column(own.astype(np.int32), [self.names[code] for code in used.tolist()])

    def fingerprints(self, codes: Int64s) -> Int64s:
        """Those of the strings with these numbers."""
        if len(self._fingerprints) < len(self.names):
            new = [fingerprint(name) for name in self.names[len(self._fingerprints) :]]
            self._fingerprints = np.concatenate([self._fingerprints, np.array(new, np.int64)])
        found: Int64s = self._fingerprints[codes]
        return found


class Memo:
    """A dictionary of whole numbers to pairs of them that is asked for many at once."""

    def __init__(self) -> None:
        self._keys = np.zeros(0, np.int64)
        self._values = np.zeros((0, 2), np.int64)

    def __len__(self) -> int:
        return len(self._keys)

    def look_up(self, keys: Int64s, compute: Callable[[int], tuple[int, int]]) -> Int64s:
        """A row of two for each key; what is not known yet is computed and kept."""
        places = np.searchsorted(self._keys, keys)
        known = np.zeros(len(keys), bool)
        inside = places < len(self._keys)
        known[inside] = self._keys[places[inside]] == keys[inside]
        if not known.all():
            new = keys[~known]
            values = np.array([compute(key) for key in new.tolist()], np.int64)
            all_keys, all_values = np.concatenate([self._keys, new]), np.concatenate([self._values, values])
            order = np.argsort(all_keys)
            self._keys, self._values = all_keys[order], all_values[order]
            places = np.searchsorted(self._keys, keys)
        found: Int64s = self._values[places]
        return found
