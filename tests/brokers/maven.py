"""Jars for the tests: a test that needs real jars fails without Maven, it does not skip."""

import os
from collections.abc import Sequence
from pathlib import Path

from kquota.sandbox import maven

JARS = Path(__file__).resolve().parents[2] / "build" / "jars"
"""Where the jars go, one directory a set; git ignores it."""


def retrieve(name: str, coordinates: Sequence[str], without: Sequence[str] = ()) -> Path:
    """The directory of a set of jars, as `kquota.sandbox.maven.retrieve` has it."""
    return maven.retrieve(JARS / name, coordinates, without)


def class_path(*directories: Path) -> str:
    """The `-cp` argument for all jars of those directories."""
    return os.pathsep.join(f"{directory}/*" for directory in directories)
