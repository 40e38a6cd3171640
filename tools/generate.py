"""Writes the files that are generated from the code: man pages, pages of the documentation, and the members of a
finding in a schema.

    python -m tools.generate            writes the files
    python -m tools.generate --check    exits with 1 when one is stale

`tests/test_generated.py` runs the check.
"""

import argparse
import sys
from functools import cache
from pathlib import Path

from tools import manpages, pages, schemas

ROOT = Path(__file__).resolve().parents[1]


def paths() -> list[Path]:
    """Every generated file; nothing is rendered for this list, which takes seconds for some."""
    return [*_quick_files(), *_pages_with_parts()]


def content(path: Path) -> str:
    """What should be in that generated file."""
    return _quick_files()[path] if path in _quick_files() else fill(path.read_text(encoding="utf-8"))


@cache
def _quick_files() -> dict[Path, str]:
    generated = {ROOT / "man" / name: page for name, page in manpages.pages()}
    return generated | dict(pages.pages()) | {schemas.PATH: schemas.audit_schema()}


def _pages_with_parts() -> list[Path]:
    """The pages that people write and that hold generated parts; some are rendered from measurements."""
    written = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    texts = {page: page.read_text(encoding="utf-8") for page in written}
    lacking = [name for name in _PARTS if not any(_BEGIN.format(name) in text for text in texts.values())]
    assert not lacking, f"no page has the generated parts {lacking}"
    return [page for page, text in texts.items() if any(_BEGIN.format(name) in text for name in _PARTS)]


def accuracy() -> str:
    """The audit of the recorded log beside what the broker itself wrote into it."""
    from tests.audit.recorded import accuracy_table

    return accuracy_table()


def predictions() -> str:
    """Predictions beside real runs, from the figures that `tools.accuracy.pairs.measure` wrote."""
    from tools.accuracy.pairs.tables import FIGURES, figures_of, page

    return page(figures_of(FIGURES))


def predictions_of_three() -> str:
    """The same on three brokers."""
    from tools.accuracy.pairs.tables import FIGURES_OF_THREE, brief_page, figures_of

    return brief_page(figures_of(FIGURES_OF_THREE))


def releases() -> str:
    """What was found with brokers of each release."""
    from tools.releases import table

    return table()


_PARTS = {
    "commands": pages.command_table,
    "accuracy": accuracy,
    "predictions": predictions,
    "predictions of three brokers": predictions_of_three,
    "releases": releases,
}
_BEGIN, _END = "<!-- generated: {} -->\n", "<!-- end -->"


def fill(text: str) -> str:
    """A page of Markdown with its generated parts renewed."""
    for name, render in _PARTS.items():
        begin = _BEGIN.format(name)
        if begin in text:
            head, rest = text.split(begin, 1)
            _, tail = rest.split(_END, 1)
            text = f"{head}{begin}{render()}{_END}{tail}"
    return text


def main() -> int:
    """Writes or checks; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    texts = {path: content(path) for path in paths()}
    stale = [path for path, text in texts.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        print(f"{'stale' if check else 'wrote'} {path.relative_to(ROOT)}")
        if not check:
            path.write_text(texts[path], encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
