"""The documentation: it builds without a warning, and the README stays short."""

import html
import re
import sys
import tomllib
from pathlib import Path

import click
import pytest

from kquota.cli.commands.describe import command as describe
from tests.support import examples
from tests.support.processes import ROOT, ran
from tools import picture


def test_the_documentation_builds(tmp_path: Path) -> None:
    """Every page is in the navigation, and every link leads somewhere."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = ran(command, environment={"NO_MKDOCS_2_WARNING": "1"})

    assert done.returncode == 0, done.stderr
    assert "not included in the" not in done.stderr, done.stderr
    assert (tmp_path / "how-to" / "audit.html").is_file()


def test_the_readme_names_the_versions_of_kafka_and_python() -> None:
    """The same as the page about connections, the help, and the package."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    connecting = (ROOT / "docs" / "how-to" / "connect.md").read_text(encoding="utf-8")
    cluster = describe.to_info_dict(click.Context(describe))["params"]
    (brokers,) = (each["help"] for each in cluster if each["name"] == "bootstrap_server")
    texts = (readme, connecting, brokers)
    kafka = [set(re.findall(r"Kafka (\d+\.\d+) and later", text)) for text in texts]
    assert kafka == [{"2.6"}] * len(texts)
    package = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {f">={version}" for version in re.findall(r"Python (\d+\.\d+) or later", readme)} == {
        package["requires-python"]
    }


def test_every_block_of_commands_runs_or_says_why_not() -> None:
    """`tests/test_examples.py` runs the others; a reason is a sentence and not a word."""
    excluded = [block for block in examples.blocks() if block.not_run is not None]
    assert excluded
    assert all(len((block.not_run or "").split()) >= 4 for block in excluded)
    # A fence without a language would be neither.
    bare = [page for page in examples.pages() if re.search(r"(?:\A|\n\n) *```\n(?! *\n)", page.read_text("utf-8"))]
    assert bare == []


@pytest.mark.parametrize("command", [picture.RESOLVE, picture.AUDIT], ids=["resolve", "audit"])
def test_the_picture_of_the_readme_is_of_this_kquota(command: str) -> None:
    """Every word and every number of it, in their order; how the lines are broken and coloured is left out."""
    drawn = html.unescape("".join(re.findall(r"<text[^>]*>([^<]*)</text>", picture.PICTURE.read_text("utf-8"))))
    printed = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", picture.shown(command))
    assert len(printed.split()) > 20
    assert "".join(printed.split()) in "".join(drawn.split()), "python -m tools.picture"
