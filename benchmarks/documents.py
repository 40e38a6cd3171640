"""Reading a quotas file of 100,000 entities: the plain YAML that kquota exports, beside the same as JSON.

The floor is `json.loads` of the standard library: what a parser in C takes for the same values.
"""

import json
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.documents.encoding import to_json
from kquota.documents.quotas import quotas_document, quotas_text, read_quotas

ENTITIES = 100_000


def _seconds(work: Callable[[], object]) -> float:
    """The processor time of one run, the best of three."""
    taken = []
    for _ in range(3):
        started = time.process_time()
        work()
        taken.append(time.process_time() - started)
    return min(taken)


def main() -> None:
    values = [{QuotaKey.PRODUCER_BYTE_RATE: (1 + number) << 20} for number in range(100)]
    snapshot = QuotaSnapshot(
        {Entity(user=f"CN=user-{n:06},OU=x", client_id=f"app-{n % 7}"): values[n % 100] for n in range(ENTITIES)}
    )
    with tempfile.TemporaryDirectory() as folder:
        yaml, document = Path(folder) / "quotas.yaml", Path(folder) / "quotas.json"
        yaml.write_text(quotas_text(snapshot), encoding="utf-8")
        document.write_text(to_json(quotas_document(snapshot)), encoding="utf-8")
        floor = _seconds(lambda: json.loads(document.read_text(encoding="utf-8")))
        for name, path in (("JSON", document), ("YAML", yaml)):
            seconds = _seconds(lambda path=path: read_quotas(path))  # type: ignore[misc]
            print(f"{name}: {seconds:.2f} s of processor time, {seconds / floor:.1f} times json.loads ({floor:.2f} s)")
    print(f"at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MB")


if __name__ == "__main__":
    main()
