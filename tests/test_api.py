"""The public API: whole, lazy, and as the README shows it."""

import gzip
import inspect
import re
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import kquota
from kquota import Alteration, Entity, QuotaBackend, QuotaKey, connect, resolve
from kquota.access import Access, load_config
from kquota.backends.memory import MemoryBackend
from tests.cli.conftest import quotas
from tests.support.processes import ran


def cluster_address(backend: QuotaBackend) -> str:
    """The address that it was opened with."""
    return str(getattr(backend, "cluster_address"))  # noqa: B009


def test_a_name_brings_its_own_module_only() -> None:
    """The errors do not cost a backend."""
    code = "import sys; from kquota import KquotaError; print(*(m for m in sys.modules if m.startswith('kquota')))"
    done = ran([sys.executable, "-c", code])

    assert done.stdout.split() == ["kquota", "kquota.errors"]


def test_the_example_of_the_readme_runs(
    chroot: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a real ZooKeeper."""
    monkeypatch.setenv("KQUOTA_JOURNAL", str(tmp_path))
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)

    exec(example.replace("localhost:2181", chroot), {})

    assert "producer_byte_rate 10000000 alice:app1" in capsys.readouterr().out


QUOTAS = {"user=alice": {"producer_byte_rate": "10kB"}}


def _usage(folder: Path) -> Path:
    """A usage table in which alice produces 50 kB/s for half a minute."""
    path = folder / "usage.csv"
    rows = "".join(f"{1_700_000_000_000 + 100 * n},1,produce,alice,app,5000,1000\n" for n in range(300))
    path.write_text(f"time_ms,broker,api,user,client_id,bytes,request_time_ns\n{rows}")
    return path


FUNCTIONS = (
    "apply", "audit", "audit_stream", "connect", "lint", "plan", "probe", "recommend", "resolve", "simulate", "undo",
)  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_says_what_it_takes_and_gives(name: str) -> None:
    """With its errors and an example; packages that are functions have the signature of theirs."""
    function = getattr(kquota, name)
    home = function if callable(function) and not hasattr(function, "__path__") else function._function
    described = inspect.getdoc(home) or ""

    assert "Raises" in described
    assert re.search(rf"^    .*\b{name}\(", described, re.MULTILINE)
    assert inspect.signature(function) == inspect.signature(home)


_WHOLE = """
import sys
import kquota
from kquota.backends.memory import MemoryBackend

quotas, usage = {"user=alice": {"producer_byte_rate": "10kB"}}, sys.argv[1]
with MemoryBackend() as cluster:
    planned = kquota.plan(cluster, quotas)
    report = kquota.apply(cluster, planned, yes=True)
    assert kquota.resolve(cluster, "alice", "app")[0].limit == 10_000
    assert not kquota.lint(cluster)
    assert kquota.audit(usage, cluster).throttled
    assert kquota.audit(usage, cluster, until_ms=1_700_000_010_000).quality.outside == 200
    assert kquota.recommend(usage, cluster).quotas[0].value > 10_000
    assert kquota.simulate(events=[usage], quotas=cluster).clients[0].throttled
    kquota.undo(cluster, report.entry)
    assert not cluster.describe()
try:
    kquota.probe("produce", bootstrap_server="127.0.0.1:1")
except kquota.InputError as error:
    assert "needs a topic" in error.message, error.message
print(*sorted({"click", "rich"} & set(sys.modules)), *(name for name in sys.modules if name.startswith("kquota.cli")))
"""


def test_a_program_can_do_all_without_the_command_line(tmp_path: Path) -> None:
    """From the plan to the audit, in an interpreter that never imports click."""
    command = [sys.executable, "-c", _WHOLE, str(_usage(tmp_path))]
    done = ran(command, environment={"KQUOTA_JOURNAL": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)})

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "\n"


def test_texts_are_taken_as_on_the_command_line(tmp_path: Path) -> None:
    """Entities, keys and values; what is wrong in them is an InputError with the words of the command line."""
    backend = MemoryBackend()
    [result] = backend.alter([Alteration(Entity(user="bob"), {"producer_byte_rate": "10MB"})])  # type: ignore[dict-item]
    file = tmp_path / "quotas.yaml"
    file.write_text(quotas(alice=1))

    assert result.after == {QuotaKey.PRODUCER_BYTE_RATE: 10_000_000}
    assert resolve(QUOTAS, "alice")[0].limit == 10_000
    assert resolve(file, "alice")[0].limit == resolve(str(file), "alice")[0].limit == 1
    assert resolve({Entity(user="alice"): {QuotaKey.PRODUCER_BYTE_RATE: 7}}, "alice")[0].limit == 7
    with pytest.raises(kquota.InputError, match="unknown quota key 'producer_rate'"):
        resolve({"user=alice": {"producer_rate": 1}}, "alice")
    with pytest.raises(kquota.InputError, match="10mb"):
        kquota.plan(backend, {"user=alice": {"producer_byte_rate": "10mb"}})
    with pytest.raises(kquota.InputError, match="unknown quota key"):
        Alteration(Entity(user="bob"), remove=frozenset({"all"}))  # type: ignore[arg-type]


def test_old_brokers_are_asked_as_they_are(tmp_path: Path) -> None:
    """The version and the static defaults count."""
    properties = tmp_path / "server.properties"
    properties.write_text("quota.producer.default=4000\n")

    found = resolve({}, "alice", "app", kafka_version="2.8", server_properties=properties)

    assert found[0].limit == 4000
    assert resolve({}, "alice", "app")[0].limit is None


@pytest.fixture
def contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration file with contexts."""
    login = tmp_path / "client.properties"
    login.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n" + _LOGIN)
    path = tmp_path / "config.yaml"
    path.write_text(
        "contexts:\n"
        "  prod: {bootstrap-server: 'b1:9092', command-config: client.properties, timeout: 3}\n"
        "  old: {zookeeper: 'zk:2181/kafka'}\n"
        "  both: {bootstrap-server: 'b1:9092', zookeeper: 'zk:2181'}\n"
    )
    monkeypatch.setenv("KQUOTA_CONFIG", str(path))
    monkeypatch.setenv("KQUOTA_ZOOKEEPER_USERNAME", "nobody")
    return path


_LOGIN = (
    "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="alice" password="secret";\n'
)


def test_connect_takes_a_context(contexts: Path) -> None:
    """With its address, login and time-out; nothing is taken from the environment."""
    access = Access.of_context(load_config().context("prod"))
    security = access.kafka_security()

    assert cluster_address(connect(context="prod")) == "kafka://b1:9092"
    assert cluster_address(connect(context="old")) == "zookeeper://zk:2181/kafka"
    assert access.timeout_s == 3
    assert security is not None
    assert security.sasl == kquota.Plain("alice", "secret")
    assert Access.of_context(load_config().context("old")).zookeeper_security() is None


def test_connect_takes_a_client_properties(contexts: Path) -> None:
    """By its path, as the command line does; one that lacks the password asks nobody."""
    login = contexts.parent / "client.properties"
    assert cluster_address(connect(bootstrap_server="b2:9092", command_config=str(login))) == "kafka://b2:9092"
    login.write_text(login.read_text().replace(' password="secret"', ""))
    with pytest.raises(kquota.InputError, match="password"):
        connect(bootstrap_server="b2:9092", command_config=login)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "exactly one of"),
        ({"context": "prod", "zookeeper": "zk:2181"}, "exactly one of"),
        ({"context": "prd"}, "no context 'prd'"),
        ({"context": "both"}, "has two addresses"),
    ],
)
def test_connect_refuses_what_is_ambiguous(contexts: Path, arguments: dict[str, str], says: str) -> None:
    """Before anything is connected to."""
    with pytest.raises(kquota.InputError, match=says):
        connect(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("arguments", [{"bootstrap_server": "x:1"}, {"zookeeper": "x:1"}], ids=str)
def test_what_connect_returns_explains_itself(arguments: dict[str, str]) -> None:
    """Each method has its docstring on the object."""
    cluster = connect(**arguments)  # type: ignore[arg-type]

    for name in ("describe", "alter", "wait_visible", "close"):
        assert inspect.getdoc(getattr(cluster, name)), name
    assert inspect.getdoc(cluster.describe) == inspect.getdoc(QuotaBackend.describe)


def test_a_simulation_says_what_it_leaves_out(tmp_path: Path) -> None:
    """A file that ends early, a line that is no record, and a quota that such brokers do not enforce."""
    line = "{ts},b1,alice,app,produce,100\n"
    head = "time_ms,broker,user,client_id,api,bytes\n"
    usage = tmp_path / "usage.csv"
    usage.write_text(head + line.format(ts=1_700_000_000_000) + line.format(ts="never"))
    cut = tmp_path / "cut.csv.gz"
    cut.write_bytes(gzip.compress((head + line.format(ts=1_700_000_000_000)).encode())[:-4])

    quotas = {"user=alice": {"producer_byte_rate": "10kB"}, "ip=10.0.0.1": {"connection_creation_rate": "5"}}
    result = kquota.simulate(events=[usage, cut], quotas=quotas, kafka_version="2.6")

    assert any("cannot be read" in note for note in result.notes)
    assert any(str(cut) in note for note in result.notes)
    assert any("not enforced by Kafka 2.6" in note for note in result.notes)


def test_a_simulation_needs_quotas_from_somewhere(tmp_path: Path) -> None:
    """The workload's own, or those of the call."""
    workload = tmp_path / "workload.yaml"
    workload.write_text(
        "{kind: kquota.workload, version: 1, duration: 10s,"
        " clients: [{name: p, user: alice, api: produce, rate: 50kB/s, size: 1kB}]}"
    )

    assert kquota.simulate(workload, QUOTAS).clients[0].throttled
    assert not kquota.simulate(workload, {}).clients[0].throttled
    with pytest.raises(kquota.InputError, match="no quotas"):
        kquota.simulate(workload)
    with pytest.raises(kquota.InputError, match="either a workload or events"):
        kquota.simulate(workload, QUOTAS, events=["usage.csv"])


def test_a_table_in_memory_is_no_usage() -> None:
    """Its columns were taken for paths."""
    with pytest.raises(kquota.InputError, match="usage is a table in memory: give the path of its file"):
        kquota.audit(pa.table({"time_ms": [1]}), QUOTAS)
