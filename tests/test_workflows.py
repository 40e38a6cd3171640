"""The workflows of GitHub Actions are sound: actionlint has no complaint, and what they run is there."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
RECIPES = [*WORKFLOWS, ROOT / "docs" / "ci" / "github-actions.yaml"]
ACTIONLINT = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.7"


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in read(path)["jobs"].values() for step in job["steps"]]


def test_actionlint_has_no_complaint() -> None:
    """The program itself, or by its Go module; make installs Go where both are missing."""
    program = shutil.which("actionlint")
    go = shutil.which("go") or "/usr/local/go/bin/go"
    assert program is not None or os.access(go, os.X_OK), "neither actionlint nor Go: apt-get install golang-go"
    command = [program] if program is not None else [go, "run", ACTIONLINT]
    done = subprocess.run([*command, *map(str, RECIPES)], capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_is_modest(path: Path) -> None:
    """Few rights, an end to every job, and actions of a known version."""
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert job["timeout-minutes"] <= 120, name
        assert job["runs-on"] == "ubuntu-latest"
    for step in steps(path):
        assert ("run" in step) != ("uses" in step)
        if "uses" in step:
            assert re.fullmatch(r"[\w.-]+/[\w.-]+@(v\d+|release/v\d+)", step["uses"]), step["uses"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_what_a_workflow_runs_is_there(path: Path) -> None:
    """The targets of make, the modules of Python, and the files."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    for step in steps(path):
        script = step.get("run", "")
        assert set(re.findall(r"\bmake ([a-z]+)", script)) <= targets
        for module in re.findall(r"-m (tools\.\w+)", script):
            assert (ROOT / f"{module.replace('.', '/')}.py").is_file()
        for file in re.findall(r"--file (\S+)", script):
            assert (ROOT / file).is_file()


def test_every_python_is_tested() -> None:
    """The matrix is the list of classifiers, and begins with requires-python."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    prefix = "Programming Language :: Python :: 3."
    known = [f"3.{each.removeprefix(prefix)}" for each in project["classifiers"] if each.startswith(prefix)]
    matrix = read(ROOT / ".github" / "workflows" / "checks.yaml")["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert matrix == known
    assert project["requires-python"] == f">={matrix[0]}"


def test_a_release_is_signed_and_needs_no_token() -> None:
    """Trusted publishing: only the job that publishes may ask for an identity, and no secret is used."""
    path = ROOT / ".github" / "workflows" / "release.yaml"
    jobs = read(path)["jobs"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert "secrets." not in path.read_text()
    used = [step["uses"].partition("@")[0] for step in steps(path) if "uses" in step]
    assert {"actions/attest-build-provenance", "actions/attest-sbom", "pypa/gh-action-pypi-publish"} <= set(used)
