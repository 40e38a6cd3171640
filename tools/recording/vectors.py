"""The repository's own vectors: sequences of events, and what Kafka's classes answer to them.

python -m tools.recording.vectors       rewrites tests/vectors/enforcement_*.json
"""

import json
import sys
from pathlib import Path

from tests.differential.answers import answered
from tests.differential.oracle import RELEASES, Oracle
from tests.differential.sequences import mutations, sequences

VECTORS = Path(__file__).resolve().parents[2] / "tests" / "vectors"


def main() -> int:
    VECTORS.mkdir(exist_ok=True)
    for generation, release in RELEASES.items():
        header = {
            "format_version": 1,
            "oracle": f"Apache Kafka {release} metrics classes, by python -m tools.recording.vectors",
            "algorithm": generation.value,
        }
        asked = [*sequences(seed=20, events=1500, length=(20, 60)), *mutations(seed=20, events=600, length=(20, 40))]
        with Oracle(generation) as oracle:
            vectors = answered(oracle, asked)
        lines = ",\n".join(json.dumps(vector, separators=(",", ":")) for vector in vectors)  # one line a vector
        text = f'{json.dumps(header, indent=1)[:-2]},\n "vectors": [\n{lines}\n ]\n}}\n'
        (VECTORS / f"enforcement_{generation.value}.json").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
