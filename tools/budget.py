"""The lines that each room of kquota has, and may have: the folders of the package, and those of its audit.

    python -m tools.budget

Writes down as the most what each has now, rounded up to a multiple of twenty. `tests/test_architecture.py` holds every
room to it. Who needs more runs this in the same commit, and says there why.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parents[1] / "kquota"
BUDGET: Final = PACKAGE.parent / "tests" / "budget.json"
_STEP: Final = 20


def lines_of_rooms() -> dict[str, int]:
    """The lines of Python in each room; modules beside the folders are a room of their own."""
    lines = Counter[str]()
    for path in PACKAGE.rglob("*.py"):
        folders = path.relative_to(PACKAGE.parent).parts[:-1]
        lines["/".join(folders[: 3 if "audit" in folders[1:2] else 2])] += path.read_bytes().count(b"\n")
    return dict(sorted(lines.items()))


if __name__ == "__main__":
    most = {room: -(-lines // _STEP) * _STEP for room, lines in lines_of_rooms().items()}
    BUDGET.write_text(json.dumps(most, indent=1) + "\n", encoding="utf-8")
