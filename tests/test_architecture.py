"""The page for newcomers shows the house as it is: the floors of its contracts, and rooms that exist."""

from __future__ import annotations

import re
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def floors() -> list[list[str]]:
    """The layers of each contract, in the order of `pyproject.toml`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    return [contract["layers"] for contract in contracts if contract["type"] == "layers"]


def test_the_pictures_are_the_contracts() -> None:
    pictures = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert [picture.splitlines() for picture in pictures] == floors()


def test_every_room_of_the_package_is_in_the_picture() -> None:
    """But for the public names, and the folder of the user's state."""
    drawn = {room.removeprefix("kquota.") for floor in floors()[0] for room in floor.split(" | ")}
    rooms = {
        path.stem for path in (ROOT / "kquota").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert rooms - drawn <= {"__init__", "state"}


def test_every_path_that_is_named_exists() -> None:
    named = re.findall(r"`((?:kquota|tests|schemas|docs|tools)/[\w./]*)`", PAGE)
    assert len(named) > 50
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_no_module_imports_itself_by_a_detour() -> None:
    """Imports in functions and those for type checkers count; the package itself only lists the public names."""
    graph = grimp.build_graph("kquota", cache_dir=None)
    modules = graph.modules - {"kquota"}
    imports = {module: graph.find_modules_directly_imported_by(module) & modules for module in modules}
    assert len(modules) > 300
    TopologicalSorter(imports).prepare()  # raises CycleError with the circle
