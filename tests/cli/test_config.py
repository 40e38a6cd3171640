"""Contexts on the command line: which cluster is meant, and whose credentials it gets."""

from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Kquota, validated
from tests.support.data import data_rows, data_text

CONFIG = data_text("cli/contexts.yaml")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration file where the XDG specification puts it."""
    path = tmp_path / ".config" / "kquota" / "config.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(CONFIG)
    return path


def words_of(line: str) -> tuple[list[str], dict[str, str]]:
    """The arguments of a command line, and the variables before them."""
    words = line.split()
    variables = [word for word in words if word.startswith("KQUOTA_")]
    return words[len(variables) :], dict(variable.split("=", 1) for variable in variables)


def view(kquota: Kquota, *arguments: str, **environment: str) -> dict[str, tuple[str, str]]:
    """Every setting in effect but the time-out's default: its value, and where it comes from."""
    done = kquota("config", "view", "--show-origin", "-o", "json", *arguments, **environment)
    assert (done.code, done.err) == (0, "")
    return {
        setting["name"]: (Path(str(setting["value"])).name, " ".join(setting["origin"].values()))
        for setting in validated(done.out, "settings")["settings"]
        if setting["origin"] != {"from": "default"}
    }


@pytest.mark.usefixtures("config")
@pytest.mark.parametrize(("case", "line", "expected"), data_rows("cli/origins.txt"))
def test_where_each_setting_comes_from(kquota: Kquota, case: str, line: str, expected: str) -> None:
    """Option, environment, context; and whose credentials go where."""
    arguments, environment = words_of(line)
    shown = view(kquota, *arguments, **environment)
    assert {f"{name}={value} ({origin})" for name, (value, origin) in shown.items()} == set(expected.split(", ")), case


@pytest.mark.parametrize("how", ["current", "option", "environment"])
def test_commands_reach_the_context(kquota: Kquota, chroot: str, config: Path, how: str) -> None:
    """A real ZooKeeper behind a name."""
    config.write_text(f"contexts: {{real: {{zookeeper: '{chroot}'}}}}\n")
    arguments: tuple[str, ...] = ()
    environment = {}
    if how == "current":
        assert kquota("config", "use-context", "real").code == 0
    elif how == "option":
        arguments = ("--context", "real")
    else:
        environment = {"KQUOTA_CONTEXT": "real"}

    altered = kquota("alter", "--user", "alice", "--add-config", "request_percentage=50%", *arguments, **environment)
    shown = kquota("describe", "-o", "csv", *arguments, **environment)
    resolved = kquota("resolve", "--user", "alice", "-o", "csv", *arguments, **environment)

    assert (altered.code, altered.rest) == (0, "")
    assert shown.out.splitlines()[1:] == ["alice,,,request_percentage,50,% of one thread"]
    assert "request_percentage,50.0,user,user=alice" in resolved.out


@pytest.mark.usefixtures("config")
@pytest.mark.parametrize(("line", "code", "says"), data_rows("refused/contexts.txt"))
def test_one_clear_line(kquota: Kquota, line: str, code: str, says: str) -> None:
    arguments, environment = words_of(line)
    done = kquota(*arguments, **environment)

    assert done.code == int(code)
    assert says in done.err.splitlines()[-1]


def test_a_broken_file_stops_only_who_needs_it(kquota: Kquota, config: Path, chroot: str) -> None:
    """The file is read when it decides which cluster is meant, and not before."""
    config.write_text("contexts: {prod: {zookeper: x}}\n")

    broken = kquota("describe")
    addressed = kquota("describe", "--zookeeper", chroot, "-o", "name")
    wrong_value = kquota("alter", "--user", "alice", "--add-config", "producer_byte_rate=-1")

    assert broken.code == 3
    assert "line 1: contexts.prod.zookeper: unknown key (did you mean zookeeper?)" in broken.complaint
    assert addressed.code == 0
    assert "warning: which values end is not known" in addressed.complaint
    assert "must be greater than 0" in wrong_value.complaint


def test_contexts_are_listed_and_chosen(kquota: Kquota, config: Path) -> None:
    """The list, the mark, and what the environment says over it."""
    listed = kquota("config", "get-contexts")
    document = validated(kquota("config", "get-contexts", "-o", "json").out, "contexts")
    chosen = kquota("config", "use-context", "old")
    shadowed = kquota("config", "use-context", "both", KQUOTA_CONTEXT="prod")
    addressed = kquota("config", "use-context", "both", KQUOTA_BOOTSTRAP_SERVER="a:1")
    assert "warning: KQUOTA_BOOTSTRAP_SERVER names a cluster, and comes before the file: unset it" in addressed.err

    assert [line.split() for line in listed.out.splitlines()] == [
        ["CURRENT", "NAME", "CLUSTER", "COMMENT"],
        ["*", "prod", "bootstrap-server", "prod:9092"],
        ["old", "zookeeper", "old:2181/kafka", "until", "the", "migration"],
        ["both", "bootstrap-server", "both:9092", "zookeeper", "both:2181"],
    ]
    assert document["current"] == "prod"
    assert document["contexts"][1] == {"name": "old", "zookeeper": "old:2181/kafka", "comment": "until the migration"}
    assert chosen.complaint == f"old is the current context of {config}"
    assert "KQUOTA_CONTEXT says prod" in shadowed.err
    assert config.read_text() == CONFIG.replace("current-context: prod", "current-context: both")


def test_without_a_file_nothing_changes(kquota: Kquota) -> None:
    """No contexts, no complaint, until one is asked for."""
    listed = kquota("config", "get-contexts")
    viewed = kquota("config", "view", "--zookeeper", "zk:1", "--show-origin")
    asked = kquota("describe", "--context", "prod")
    lost = kquota("describe")

    assert (listed.code, listed.out) == (0, "")
    assert "no contexts in" in listed.complaint
    assert asked.code == 3
    assert "it has no contexts" in asked.complaint
    assert [line.split() for line in viewed.out.splitlines()[1:]] == [
        ["zookeeper", "zk:1", "option", "--zookeeper"],
        ["timeout", "10", "s", "default"],
    ]
    assert lost.code == 2
    assert "no cluster given: use --bootstrap-server" in lost.err
    assert "KQUOTA_ZOOKEEPER" in lost.err

    kquota("config", "set-context", "dev", "--zookeeper", "zk:1")
    for command in ("describe", "watch", "config view"):
        assert "config.yaml: dev ('kquota config use-context NAME')" in kquota(*command.split()).err


def contexts_of(kquota: Kquota) -> tuple[str | None, dict[str, dict[str, Any]]]:
    """The current context and all contexts, as `get-contexts` prints them."""
    document = validated(kquota("config", "get-contexts", "-o", "json").out, "contexts")
    return document["current"], {context.pop("name"): context for context in document["contexts"]}


def test_where_and_why_writes_are_written_down_is_set_and_shown(kquota: Kquota, tmp_path: Path) -> None:
    """A journal of a context, and that its writes need a reason: as options, and among the settings in effect."""
    dev = ("config", "set-context", "dev", "--zookeeper", "dev:2181", "--journal", "cluster")
    made = kquota(*dev, "--require-message", "--use")

    assert made.code == 0
    assert view(kquota) == {
        "zookeeper": ("dev:2181", "context dev"),
        "journal": ("cluster", "context dev"),
        "require-message": ("True", "context dev"),
    }
    assert ["require-message", "yes"] in [line.split() for line in kquota("config", "view").out.splitlines()]
    assert contexts_of(kquota)[1]["dev"] == {
        "zookeeper": "dev:2181",
        "comment": "",
        "journal": "cluster",
        "require-message": True,
    }
    # The context's rule is the cluster's, however it is named.
    assert view(kquota, "--zookeeper", "dev:2181", KQUOTA_JOURNAL="/here") == {
        "zookeeper": ("dev:2181", "option --zookeeper"),
        "journal": ("here", "environment KQUOTA_JOURNAL"),
        "require-message": ("True", "context dev"),
    }
    rate = "max.connection.creation.rate=5"
    kquota("config", "set-context", "live", "--bootstrap-server", "127.0.0.1:1", "--require-message")
    done = kquota("alter", "--context", "live", "--broker-defaults", "--add-config", rate)
    assert (done.code, "the context live requires a reason" in done.err) == (2, True)
    kquota("config", "delete-context", "live")
    kquota(*["config", "set-context", "dev", "--journal", "team", "--no-require-message"])
    assert f'journal: "{tmp_path}/team"' in (tmp_path / ".config" / "kquota" / "config.yaml").read_text()
    assert view(kquota).keys() == {"zookeeper", "journal"}


def test_contexts_are_made_changed_and_deleted(kquota: Kquota, tmp_path: Path) -> None:
    """From no file at all, and with what somebody wrote into it kept."""
    file = tmp_path / ".config" / "kquota" / "config.yaml"
    done = kquota("config", "set-context", "dev", "--bootstrap-server", "dev:9092", "--use")
    assert (done.code, done.out) == (0, "")
    assert f"created context dev in {file}" in done.err
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text(file.read_text().replace("\ncontexts:", "\n# our clusters\ncontexts:"))

    kquota("config", "set-context", "dev", "--command-config", "dev.properties", "--timeout", "5", "--comment", "new")
    assert view(kquota) == {
        "bootstrap-server": ("dev:9092", "context dev"),
        "command-config": ("dev.properties", "context dev"),
        "timeout": ("5", "context dev"),
    }
    assert str(tmp_path / "dev.properties") in file.read_text()
    kquota("config", "set-context", "dev", "--command-config", "", "--comment", "", "--timeout", "500ms")
    assert view(kquota)["timeout"] == ("0.5", "context dev")
    assert contexts_of(kquota) == ("dev", {"dev": {"bootstrap-server": "dev:9092", "comment": ""}})

    done = kquota("config", "delete-context", "dev")
    assert (done.code, "dev was the current context" in done.err) == (0, True)
    assert contexts_of(kquota) == (None, {})
    assert "# our clusters\n" in file.read_text()
