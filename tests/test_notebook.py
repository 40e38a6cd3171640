"""The notebook of the documentation runs from top to bottom, and what its cells show is a table."""

import ast
import json
import os
from pathlib import Path
from typing import Any

import pytest

from kquota.core.tabular import Tabular

NOTEBOOK = Path(__file__).parents[1] / "docs" / "notebook.ipynb"


def cells(kind: str) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == kind]


def shown(source: str, names: dict[str, Any]) -> object:
    """What Jupyter would show of a cell: the value of its last expression."""
    tree = ast.parse(source)
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        return None
    exec(compile(ast.Module(tree.body[:-1], []), "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)


def test_every_cell_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each code cell shows something; the tables say what the text promises."""
    monkeypatch.setenv("TMPDIR", os.fspath(tmp_path))
    names: dict[str, Any] = {"__name__": "notebook"}
    values = [shown("".join(cell["source"]), names) for cell in cells("code")]
    assert all(value is not None for value in values)
    tables = [value._repr_html_() or "" for value in values if isinstance(value, Tabular)]
    assert len(tables) == 3
    assert all(html.startswith("<table") for html in tables)
    assert "100 kB/s" in tables[0]
    frame = names["frame"].query("key == 'producer_byte_rate'")
    assert dict(zip(frame["subject"], frame["verdict"], strict=True)) == {
        "user alice": "throttled",
        "user bob": "not throttled",
    }
    assert names["simulation"].to_pandas()["throttled"].sum() > 0


def test_it_is_kept_without_outputs() -> None:
    """So that a diff shows what a person wrote."""
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells("code"))
    assert cells("markdown")
