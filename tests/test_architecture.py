"""The page for newcomers shows the house as it is: the floors of its contracts, and rooms that exist."""

import ast
import json
import re
import tomllib
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

from tools.budget import BUDGET, lines_of_rooms

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


def writers(source: str) -> int:
    """How many times a module names an `alter` of something else, but for dry runs."""
    tree = ast.parse(source)
    named = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "alter"]
    dry = [
        call.func
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and any(
            word.arg == "validate_only" and isinstance(word.value, ast.Constant) and word.value.value is True
            for word in call.keywords
        )
    ]
    return len([node for node in named if node not in dry])


def test_every_write_takes_one_road() -> None:
    """Above the backends, quotas are written by `kquota.reconcile` alone: reviewed, journalled and verified.

    A controller shows nothing that a plan could be made of, so `kquota.changes` writes there at once. Limits of brokers
    are no quotas. The drop-in for Kafka's tool writes as that does.
    """
    found = Counter[str]()
    for path in (ROOT / "kquota").rglob("*.py"):
        room = path.relative_to(ROOT / "kquota").as_posix()
        source = path.read_text(encoding="utf-8")
        if ".alter" in source and not room.startswith(("backends/", "cli/kafka_configs/")):
            found[room] += writers(source)
    assert dict(+found) == {
        "reconcile.py": 2,  # a batch, and taking it back
        "changes.py": 1,  # through a controller
        "cli/brokers.py": 1,  # limits of brokers
        "cli/commands/alter.py": 1,  # leads there
    }


def test_a_second_road_would_be_found() -> None:
    dry = "def f(backend):\n    return backend.alter([], validate_only=True)\n"
    assert writers(dry) == 0
    assert writers(dry.replace("True", "False")) == writers(dry.replace(", validate_only=True", "")) == 1
    assert writers("def f(backend):\n    write = backend.alter\n") == 1


def test_no_room_has_more_lines_than_its_budget() -> None:
    """Who needs more runs `python -m tools.budget` in the same commit, and says there why."""
    lines, most = lines_of_rooms(), json.loads(BUDGET.read_text(encoding="utf-8"))
    assert lines.keys() == most.keys()
    assert {room: count for room, count in lines.items() if count > most[room]} == {}
