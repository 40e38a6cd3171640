"""Tab in real shells, on a real ZooKeeper."""

import json
import os
import re
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota import Alteration, Entity, QuotaKey, QuotaSnapshot, connect
from kquota.cli.completion import quoted_rest, split
from kquota.core.change.plan import plan
from kquota.documents.journal import Entry, Journal
from tests.brokers.kafka import KafkaBroker
from tests.cli.conftest import Kquota
from tests.cli.terminal import ROOT, SHELLS, Terminal
from tests.support.data import data_rows
from tests.support.sandbox import Sandbox, kazoo
from tests.support.scheduling import examples, part
from tests.support.waiting import settled, until

NAMES = (
    "my user", "o'brien", 'quo"te', "eq=ual", "col:on", "CN=a,OU=b", "dol$lar", "back\\slash", "bang!x", "ümlaut",
    "semi;x", "~tilde", "#hash", "star*", "tick`x", "(paren)", "<default>", "amp&x", "{a,b}", "[x]", "@at", "^up",
)  # fmt: skip
LIST = "request_percentage,producer_byte_rate"
RATE = {QuotaKey.PRODUCER_BYTE_RATE: 1000}
CONTEXTS = "contexts: {prod: {zookeeper: z, comment: 'a: b'}, 'old one': {bootstrap-server: b:1}}\n"


def patiently(try_it: Callable[[], object], expected: object) -> None:
    """Presses Tab again where the answer of a busy machine came too late for the first one, as people do."""
    assert settled(try_it, expected) == expected


def last_word(terminal: Terminal, line: str) -> Callable[[], str]:
    """Completes that line when called, and returns its last word."""
    return lambda: "".join(terminal.complete(line)[-1:])


@pytest.fixture(scope="module", params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def terminal(shell: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """A shell in a folder with some files and contexts, and no cluster."""
    folder = tmp_path_factory.mktemp(shell)
    (folder / "my quotas.yaml").write_text(
        "kind: kquota.quotas\nversion: 1\nquotas: [{entity: {user: from file}, values: {request_percentage: 1}}]\n"
    )
    config = folder / ".config" / "kquota" / "config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text(CONTEXTS)
    with Terminal(shell, folder, {}) as opened:
        yield opened


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("res", ["resolve"]),
        ("describe --entity-type=us", ["describe", "--entity-type=users"]),
        ("alter --user a --add-config prod", ["alter", "--user", "a", "--add-config", "producer_byte_rate="]),
        ("alter --add-config=prod", ["alter", "--add-config=producer_byte_rate="]),
        (
            "alter --add-config producer_byte_rate=1,cons",
            ["alter", "--add-config", "producer_byte_rate=1,consumer_byte_rate="],
        ),
        ("alter --delete-config request_percentage,p", ["alter", "--delete-config", LIST]),
        ("describe --context o", ["describe", "--context", "old one"]),
        ("resolve --quotas m", ["resolve", "--quotas", "my quotas.yaml"]),
        ("resolve --quotas=m", ["resolve", "--quotas=my quotas.yaml"]),
        ("audit m", ["audit", "my quotas.yaml"]),
    ],
)
def test_words_of_the_command_line(terminal: Terminal, line: str, expected: list[str]) -> None:
    """What shells split, quote or complete by themselves: options with =, lists of keys, names with blanks, files."""
    patiently(lambda: terminal.complete(f"kquota {line}"), ["kquota", *expected])


@pytest.mark.parametrize(("line", "expected"), data_rows("cli/completions.txt"))
def test_words_that_the_program_answers(kquota: Kquota, tmp_path: Path, line: str, expected: str) -> None:
    """Commands, topics, options, their values, keys and contexts: of any shell, here as fish gets them."""
    config = tmp_path / "config.yaml"
    config.write_text(CONTEXTS)
    asked = {"_KQUOTA_COMPLETE": "fish_complete", "_KQUOTA_BEFORE": f"kquota {line}", "KQUOTA_CONFIG": str(config)}
    assert [answer.split("\t")[0] for answer in kquota(**asked).out.splitlines()] == [expected]


def test_candidates_are_listed(terminal: Terminal, shell: str) -> None:
    """All are shown; bash wants to be asked twice, and the others would choose one then."""
    tabs = 2 if shell == "bash" else 1

    def listed() -> list[str]:
        words = terminal.complete("kquota alter --delete-config con", tabs=tabs)
        return sorted(key.value for key in QuotaKey if key.value in terminal.shown) if words[-1:] == ["con"] else words

    patiently(listed, ["connection_creation_rate", "consumer_byte_rate", "controller_mutation_rate"])


def test_names_of_a_file(terminal: Terminal) -> None:
    line = "kquota resolve --quotas 'my quotas.yaml' --user fr"

    patiently(last_word(terminal, line), "from file")


@pytest.fixture(scope="module")
def cluster(zookeeper: Sandbox) -> str:
    """A chroot with all sorts of names."""
    with kazoo(zookeeper.connect) as client:
        client.create("/completion")
    address = f"{zookeeper.connect}/completion"
    with connect(zookeeper=address) as backend:
        backend.alter([Alteration(Entity(user=name), RATE) for name in NAMES])
        backend.alter([Alteration(Entity(user="my user", client_id="app 1"), RATE)])
        backend.alter([Alteration(Entity(ip="10.0.0.7"), {QuotaKey.CONNECTION_CREATION_RATE: 1})])
    return address


@pytest.fixture(scope="module")
def online(shell: str, cluster: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """A shell whose environment says where the cluster is, in a variable of its own."""
    folder = tmp_path_factory.mktemp(f"{shell}-online")
    config = folder / "kquota.yaml"
    config.write_text(f"contexts: {{real: {{zookeeper: {json.dumps(cluster)}}}}}\n")
    with Terminal(shell, folder, {"CLUSTER": cluster, "KQUOTA_CONFIG": str(config)}) as opened:
        yield opened


@pytest.mark.parametrize("quote", ["", "'", '"'], ids=["bare", "single", "double"])
def test_any_name_becomes_the_right_word(online: Terminal, shell: str, quote: str) -> None:
    """Blanks, quotes, and what shells and readline split words at: the command gets the name as it is."""
    patiently(last_word(online, "kquota describe --zookeeper $CLUSTER --user eq"), "eq=ual")
    for name in part(NAMES[:12] if quote else NAMES, SHELLS.index(shell)):
        begun = re.split(r"\W", name)[0][:3]
        typed = begun or (name[0] if quote else f"\\{name[0]}")
        line = f"kquota describe --zookeeper $CLUSTER --user {quote}{typed}"
        patiently(last_word(online, line), name)


NAMED = (
    ("describe --zookeeper $CLUSTER --user eq=", "eq=ual"),
    ('describe --zookeeper="$CLUSTER" --user=col:', "--user=col:on"),
    ("describe --context real --user my\\ ", "my user"),
    ("resolve --context real --client a", "app 1"),
    ("resolve --context real --ip 10", "10.0.0.7"),
    ("describe --context real --entity-type users --entity-name my", "my user"),
    ("describe --context real --entity-type clients --entity-type users --entity-name a", "app 1"),
    ("describe --context real --entity-type users --entity-default --entity-type clients --entity-name a", "app 1"),
    ("alter --context real --entity user=quo", 'user=quo"te'),
    ("alter --context real --entity user=my\\ user,", "user=my user,client-id=app 1"),
    ("alter --context real --entity user=CN=a", "user=CN=a,OU=b"),
)
"""Lines that name something in the cluster, and the name."""


def test_names_of_the_cluster(online: Terminal, shell: str) -> None:
    """Each option that takes a name, and each way to say which cluster."""
    for line, expected in part(NAMED, SHELLS.index(shell)):
        patiently(last_word(online, f"kquota {line}"), expected)


def test_names_of_a_live_broker(shell: str, kraft: KafkaBroker, tmp_path: Path) -> None:
    with connect(bootstrap_server=kraft.bootstrap) as backend:
        backend.wait_visible(backend.alter([Alteration(Entity(user="zz-by-tab"), RATE)]))
    with Terminal(shell, tmp_path, {"KQUOTA_BOOTSTRAP_SERVER": kraft.bootstrap}) as terminal:
        patiently(last_word(terminal, "kquota describe --user zz-b"), "zz-by-tab")


def ask(folder: Path, line: str, **environment: str) -> tuple[str, str, float]:
    """What the program answers a shell, what it says on stderr, and the seconds that it takes."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("KQUOTA_", "XDG_"))}
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "kquota"],
        capture_output=True,
        text=True,
        cwd=folder,
        env=clean
        | {"_KQUOTA_COMPLETE": "fish_complete", "_KQUOTA_BEFORE": line, "HOME": str(folder), "PYTHONPATH": str(ROOT)}
        | environment,
        timeout=180,
        check=False,
    )
    return done.stdout.strip(), done.stderr, time.monotonic() - begin


def answered(kquota: Kquota, line: str, **environment: str) -> tuple[list[str], str]:
    """The words that the program answers, and what it says on stderr."""
    done = kquota(_KQUOTA_COMPLETE="fish_complete", _KQUOTA_BEFORE=line, **environment)
    return done.out.split(), done.err


def test_names_are_remembered_for_a_minute(kquota: Kquota, tmp_path: Path, chroot: str) -> None:
    """In a file for its owner only, for each cluster its own; after a minute the cluster is asked again.

    On a busy machine an ask that came too late for its Tab may still write the file after the next one.
    """
    line = f"kquota describe --zookeeper {chroot} --user a"
    with connect(zookeeper=chroot) as backend:
        backend.alter([Alteration(Entity(user="alice"), RATE)])
        backend.alter([Alteration(Entity(user="albert"), RATE)])
    patiently(lambda: answered(kquota, line)[0], ["albert", "alice"])

    (cache,) = (tmp_path / ".cache" / "kquota").glob("names-*.json")
    assert stat.S_IMODE(cache.stat().st_mode) == 0o600
    assert stat.S_IMODE(cache.parent.stat().st_mode) == 0o700
    names = json.loads(cache.read_text())

    def remembered(age_s: float) -> list[str]:
        cache.write_text(json.dumps(names | {"user": ["anna"]}))
        os.utime(cache, (time.time() - age_s,) * 2)
        return answered(kquota, line)[0]

    patiently(lambda: remembered(0), ["anna"])
    patiently(lambda: remembered(61), ["albert", "alice"])
    patiently(lambda: list(cache.parent.iterdir()), [cache])


def test_the_entries_of_the_journal(kquota: Kquota, tmp_path: Path) -> None:
    """An undo gets those of its cluster, the newest first; the history gets all."""
    journal = Journal(tmp_path / "journal")
    planned = plan(QuotaSnapshot(), {Entity(user="alice"): RATE})
    places = ("zookeeper://a:2181", "zookeeper://b:2181", "zookeeper://a:2181", "kafka://a:9092")
    ids = [
        journal.begin(Entry("", place, "apply", 1_790_000_000_000 + 1000 * number, planned)).id
        for number, place in enumerate(places)
    ]
    here = {"KQUOTA_JOURNAL": str(journal.folder)}
    for line, expected in (
        ("kquota undo --zookeeper a:2181 ", [ids[2], ids[0]]),
        (f"kquota undo --zookeeper a:2181 {ids[0]} ", [ids[2], ids[0]]),
        ("kquota undo --bootstrap-server a:9092 ", [ids[3]]),
        ("kquota undo --zookeeper elsewhere:2181 ", []),
        ("kquota history ", ids[::-1]),
    ):
        patiently(partial(answered, kquota, line, **here), (expected, ""))


STUCK = """\
import os, socket, time
def stuck(*arguments, **options):
    try:
        tty = os.open("/dev/tty", os.O_RDWR)
    except OSError:
        tty = None
    with open("stuck.new", "w") as file:
        print(os.getpid(), tty, os.readlink("/proc/self/fd/0"), os.readlink("/proc/self/fd/2"), file=file)
    os.rename("stuck.new", "stuck")
    time.sleep(600)
socket.getaddrinfo = stuck
"""


def test_a_folder_that_hangs_keeps_nobody_waiting(tmp_path: Path) -> None:
    """Nor does anything else: reading the configuration file is over in time, too."""
    os.mkfifo(tmp_path / "config.yaml")  # nobody writes to it

    out, err, _ = ask(tmp_path, "kquota describe --context p", KQUOTA_CONFIG=str(tmp_path / "config.yaml"))

    assert (out, err) == ("", "")


def test_a_name_server_that_hangs_keeps_nobody_waiting(tmp_path: Path) -> None:
    """What asks the cluster is another process: without a terminal to prompt on, and gone after a few seconds."""
    (tmp_path / "sitecustomize.py").write_text(STUCK)

    out, err, _ = ask(tmp_path, "kquota describe --zookeeper zk --user a", PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")

    assert (out, err) == ("", "")
    until((tmp_path / "stuck").exists)
    process, *files = (tmp_path / "stuck").read_text().split()
    assert files == ["None", os.devnull, os.devnull]
    until(lambda: not _runs(int(process)))


def _runs(process: int) -> bool:
    """Whether there is such a process, and no mere zombie of one."""
    try:
        return ") Z " not in Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
def silent_server() -> Iterator[str]:
    """The address of a server that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("option", ["--zookeeper", "--bootstrap-server"])
def test_a_silent_cluster_costs_less_than_half_a_second(tmp_path: Path, silent_server: str, option: str) -> None:
    """Against a completion that asks nobody, on the same machine at the same time; the first of some pairs."""

    def waited() -> bool:
        out, err, seconds = ask(tmp_path, f"kquota describe {option} {silent_server} --user a")
        assert (out, err) == ("", "")
        return seconds - ask(tmp_path, "kquota describe --user-d")[2] < 0.5

    until(waited)


def test_tab_is_silent_when_there_is_no_cluster(terminal: Terminal) -> None:
    """Nothing is printed, nothing is inserted: refused, unknown, malformed, or no cluster at all."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = f"127.0.0.1:{server.getsockname()[1]}"
    for option in (f"--zookeeper {closed}", f"--bootstrap-server {closed}", "--context nowhere", "--zookeeper :", ""):
        line = f"kquota describe {option} --user al"

        patiently(last_word(terminal, line), "al")
        shown = terminal.shown.lower()
        assert not any(word in shown for word in ("error", "kquota:", "traceback", "no context", "reach")), shown


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1)


@settings(deadline=None)
@given(value=TEXTS, cut=st.integers(0, 20), quote=st.sampled_from(["", "'"]))
def test_what_is_inserted_reads_back(value: str, cut: int, quote: str) -> None:
    """By the reader of lines here, whatever part of the word is there already."""
    line = f"{quote}{quoted_rest(value[:cut], quote)}"
    assert split(f"{line}{quoted_rest(value, line)}{quote}") == [value]


@settings(deadline=None, max_examples=examples(30))
@given(values=st.lists(TEXTS, min_size=1, max_size=20), quote=st.sampled_from(["", "'", '"']))
def test_bash_reads_it_the_same_way(values: list[str], quote: str) -> None:
    """Many names in one real bash."""
    line = " ".join(f"{quote}{quoted_rest(value, quote)}{quote}" for value in values)

    done = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"}
    )

    assert done.stdout.decode().split("\0")[:-1] == values


def test_lines_are_read_as_shells_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Expansions of exported variables, and nothing that would have to be executed."""
    monkeypatch.setenv("NAME", "ab")
    lines = {
        "": [""],
        "a ": ["a", ""],
        "  a  b": ["a", "b"],
        "a'b c'\"d e\"f\\ g": ["ab cd ef g"],
        '"$NAME" $NAME ${NAME}x': ["ab", "ab", "abx"],
        "$UNKNOWN $(date) `date`": ["$UNKNOWN", "$(date)", "`date`"],
        "describe 'a b": ["describe", "a b"],
        "a\\": ["a"],
    }
    assert {line: split(line) for line in lines} == lines
