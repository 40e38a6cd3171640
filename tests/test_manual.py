"""The manual, as man shows it."""

import os
import re
import shutil
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from kquota import Entity, QuotaKey
from kquota.cli.main import COMMANDS, cli
from kquota.documents.config import read_config
from kquota.documents.encoding import Document, schema
from kquota.documents.quotas import read_quota_file
from tests.support.scheduling import part

MAN = Path(__file__).resolve().parents[1] / "man"
PAGES = sorted(path.name for path in MAN.iterdir())


def shown(page: str) -> tuple[str, str]:
    """What man shows of a page, and what it complains about."""
    assert shutil.which("man") is not None, "man is not installed: make test installs it, or apt-get install man-db"
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "MANWIDTH": "80", "MANPAGER": "cat"}
    command = ["man", "--warnings=w", "--no-hyphenation", "--local-file", str(MAN / page)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180, check=True)
    return re.sub(".\b", "", done.stdout), done.stderr


def section(text: str, name: str) -> str:
    """The text of a section of a page as it is shown."""
    found = re.search(rf"^{name}\n(.*?)^\S", text, re.MULTILINE | re.DOTALL)
    assert found is not None, text
    return textwrap.dedent(found[1])


@pytest.mark.parametrize("page", part(PAGES, 0))
def test_a_page_is_shown_without_warnings(page: str) -> None:
    """It says what it is about and leads on to others, which are there."""
    text, complaints = shown(page)

    assert complaints == ""
    name, _, number = page.rpartition(".")
    assert re.search(rf"^NAME\n +{re.escape(name)} +- +\w", text, re.MULTILINE)
    related = re.findall(r"([\w.-]+)\((\d)\)", section(text, "SEE ALSO"))
    assert related
    assert {f"{other}.{section}" for other, section in related} <= set(PAGES) - {page}
    assert number in "157"


def test_help_is_called_in_the_manual_as_the_tool_calls_it() -> None:
    """By its short name as well, in the page of every command and in the reference."""
    names = ", ".join(cli.context_settings["help_option_names"])
    assert names == "-h, --help"
    pages = [MAN / "kquota.1", *(MAN / f"kquota-{name}.1" for name in COMMANDS if name != "kafka-configs")]
    lacking = [page.name for page in pages if names.replace("-", "\\-") not in page.read_text(encoding="utf-8")]
    assert lacking == []
    reference = (MAN.parent / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
    assert reference.count(f"\n  {names} ") == reference.count("Show this message and exit.")
    assert re.search(r"^ +-h, --help$", shown("kquota.1")[0], re.MULTILINE)


def test_examples_can_be_copied() -> None:
    """Whatever troff makes of quotation marks, hyphens and dollar signs elsewhere."""
    assert '\nkquota plan quotas.yaml -o markdown >> "$GITHUB_STEP_SUMMARY"\n' in section(
        shown("kquota-plan.1")[0], "EXAMPLES"
    )
    assert "\nspark-submit $(python -m kquota.cli.submit) usage.parquet --quotas proposed.yaml\n" in section(
        shown("kquota-audit.1")[0], "EXAMPLES"
    )


def test_the_example_of_the_quotas_file_is_read(tmp_path: Path) -> None:
    """Copied from the page, for each of its clusters."""
    file = tmp_path / "quotas.yaml"
    file.write_text(section(shown("kquota.yaml.5")[0], "EXAMPLES"))

    everywhere, prod, dev = (read_quota_file(file, cluster) for cluster in (None, "prod", "dev"))

    alice, backfill = Entity(user="alice"), Entity(user="alice", client_id="backfill")
    assert everywhere.desired[alice] == {QuotaKey.PRODUCER_BYTE_RATE: 10 << 20, QuotaKey.REQUEST_PERCENTAGE: 50}
    assert prod.desired[alice] == {QuotaKey.PRODUCER_BYTE_RATE: 50 << 20, QuotaKey.CONSUMER_BYTE_RATE: 50 << 20}
    assert backfill in prod.desired
    assert backfill not in dev.desired
    assert len(everywhere.unmanaged) == 2
    assert len(everywhere.protected) == 1
    assert everywhere.internal == ("connect", "schema-registry")
    assert everywhere.labels[alice] == {"owner": "team-a", "ticket": "OPS-17"}


def test_the_example_of_the_configuration_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(section(shown("kquota-config.yaml.5")[0], "EXAMPLES"))

    config = read_config(file)

    assert config.current == "staging"
    assert config.context("staging").command_config == tmp_path / "staging.properties"
    assert config.context("legacy").zookeeper == "zk1:2181,zk2:2181/kafka"


@pytest.mark.parametrize(("page", "name"), [("kquota.yaml.5", "quotas"), ("kquota-config.yaml.5", "config")])
def test_every_key_of_a_file_is_explained(page: str, name: str) -> None:
    """Also those that the schema learns later."""

    def keys(node: Document) -> Iterator[str]:
        for key, member in node.get("properties", {}).items():
            yield key
            yield from keys(member)
        for below in ("items", "additionalProperties"):
            if isinstance(node.get(below), dict):
                yield from keys(node[below])

    rules = schema(name)
    text = shown(page)[0]
    expected = {*keys(rules), *(key for part in rules["$defs"].values() for key in keys(part))}
    assert {key for key in expected if not re.search(rf"(?<![\w-]){re.escape(key)}(?![\w-])", text)} == set()
