"""Export and import against the tools themselves, on a real broker: `python -m tools.foreign.proof`.

    --rpk FILE     rpk, or a program with its commands below 'rpk cluster quotas'
    --java FILE    a java of version 21 or later, which Jikkou 0.34 needs

README.md in this folder says where they come from, and what was seen. What can be had from Maven Central and the
Python Package Index with JDK 17 alone is tested always (`tests/documents/test_foreign.py`).
"""

import argparse
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from kquota.backends.kafka import KafkaBackend
from kquota.cli.commands.export import export
from kquota.core.quotas.alteration import Alteration
from kquota.core.quotas.entity import DEFAULT, Entity
from kquota.core.quotas.quota import QuotaKey
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.documents.foreign import jikkou, rpk
from tests.brokers.kafka import AT_ONCE, KafkaBroker
from tests.brokers.maven import class_path, retrieve

JIKKOU = "0.34.0"
COORDINATES = tuple(
    f"io.streamthoughts:jikkou-{part}:{JIKKOU}" for part in ("core", "provider-kafka", "template-jinja")
)
PRODUCER, CONSUMER, REQUEST = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE
MUTATION, CONNECTION = QuotaKey.CONTROLLER_MUTATION_RATE, QuotaKey.CONNECTION_CREATION_RATE
QUOTAS = QuotaSnapshot(
    {
        Entity(user="alice"): {PRODUCER: 10_000_000, CONSUMER: 20 << 20, REQUEST: 12.5},
        Entity(user="CN=a,OU=b c, O=\"d\""): {PRODUCER: 1},
        Entity(user="{{ x }}{% y %}: #é日"): {PRODUCER: 2},
        Entity(user="null"): {PRODUCER: 3},
        Entity(user="007"): {CONSUMER: 1 << 40},
        Entity(user="a'b\\c\"d"): {REQUEST: 0.25},
        Entity(user=DEFAULT): {MUTATION: 2.5, PRODUCER: 1 << 30},
        Entity(client_id="app 1"): {CONSUMER: 1_500_000},
        Entity(client_id=DEFAULT): {CONSUMER: 1_000_001},
        Entity(user="alice", client_id="app1"): {REQUEST: 50},
        Entity(user="alice", client_id=DEFAULT): {PRODUCER: 1 << 20, MUTATION: 7},
        Entity(user=DEFAULT, client_id="app1"): {PRODUCER: 5},
        Entity(user=DEFAULT, client_id=DEFAULT): {PRODUCER: 6},
        Entity(ip="10.0.0.7"): {CONNECTION: 20},
        Entity(ip=DEFAULT): {CONNECTION: 100},
    }
)  # fmt: skip
"""Every kind of entity and every key; names that one format or another could stumble over."""


def set_quotas(bootstrap: str, quotas: QuotaSnapshot) -> None:
    """Makes these the quotas of the broker, and no others."""
    with KafkaBackend(bootstrap) as backend:
        there = backend.describe()
        gone = [Alteration(entity, remove=frozenset(values)) for entity, values in there.items()]
        backend.wait_visible(backend.alter(gone))
        results = backend.alter([Alteration(entity, values) for entity, values in quotas.items()])
        assert all(result.error is None for result in results), results
        assert backend.wait_visible(results) == ()


def quotas_of(bootstrap: str) -> QuotaSnapshot:
    """What the broker has, once it has shown the same for a moment: other tools do not wait."""
    import time

    with KafkaBackend(bootstrap) as backend:
        seen = backend.describe()
        for _ in range(100):
            time.sleep(0.5)
            before, seen = seen, backend.describe()
            if before == seen:
                return seen
    raise AssertionError("the quotas do not come to rest")


def run(command: Sequence[str]) -> str:
    """What a command prints; fails when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{shlex.join(command)}: {done.stdout}{done.stderr}"
    return done.stdout


def sayable(
    quotas: QuotaSnapshot, format_: str, read: Callable[[str, str], QuotaSnapshot]
) -> tuple[str, QuotaSnapshot]:
    """The exported text, and what it says by kquota's own reader."""
    exported = export(quotas, format_)
    said = read(format_, exported.text)
    print(f"{format_}: {len(said)} of {len(quotas)} entities exported; left out:")
    for problem in exported.unsaid:
        print(f"    {problem.where}: {problem.message}")
    return exported.text, said


def prove_rpk(bootstrap: str, program: str, folder: Path) -> None:
    """Export, `rpk import`, the commands in the comment; then `rpk describe`, import."""
    where = ["-X", f"brokers={bootstrap}"]
    text, said = sayable(QUOTAS, "rpk", rpk.read)
    file = folder / "rpk.yaml"
    file.write_text(text)
    set_quotas(bootstrap, QuotaSnapshot())
    run([program, "import", "--from", str(file), "--no-confirm", *where])
    found = quotas_of(bootstrap)
    assert found == said, f"rpk import made {dict(found)}"
    for line in text.splitlines():
        if line.startswith("#   rpk cluster quotas "):
            run([program, *shlex.split(line)[4:], *where])
    assert (found := quotas_of(bootstrap)) == QUOTAS, f"with the commands of the comment it is {dict(found)}"
    for format_ in ("json", "yaml"):
        described = run([program, "describe", "--format", format_, *where])
        assert (read := rpk.read(format_, described)) == QUOTAS, (
            f"rpk describe --format {format_} reads as {dict(read)}"
        )
    print("rpk: import, the commands of the comment, and describe: equal")


def prove_jikkou(bootstrap: str, java: str, folder: Path) -> None:
    """Export, apply, get, import; and get where there are defaults, which this version cannot apply."""
    jars = class_path(retrieve(f"jikkou-{JIKKOU}", COORDINATES))
    program = [java, "-cp", jars, str(Path(__file__).with_name("Jikkou.java")), bootstrap]
    named = QuotaSnapshot({entity: values for entity, values in QUOTAS.items() if DEFAULT not in entity})
    text, said = sayable(named, "jikkou", jikkou.read)
    file = folder / "jikkou.yaml"
    file.write_text(text)
    set_quotas(bootstrap, QuotaSnapshot())
    print(run([*program, "apply", str(file)]))
    found = quotas_of(bootstrap)
    assert found == said, f"jikkou apply made {dict(found)}"
    got = run([*program, "get"])
    assert (read := jikkou.read("jikkou get", got)) == said, f"jikkou get reads as {dict(read)}:\n{got}"
    said = jikkou.read("all", export(QUOTAS, "jikkou").text)
    set_quotas(bootstrap, said)
    got = run([*program, "get"])
    assert (read := jikkou.read("jikkou get", got)) == said, f"jikkou get reads as {dict(read)}:\n{got}"
    print("jikkou: apply and get: equal")


def main() -> int:
    """Proves what is asked for; an AssertionError says what differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rpk", metavar="FILE")
    parser.add_argument("--java", metavar="FILE")
    given = parser.parse_args()
    with KafkaBroker(settings=AT_ONCE) as broker, tempfile.TemporaryDirectory() as folder:
        if given.rpk:
            prove_rpk(broker.bootstrap, given.rpk, Path(folder))
        if given.java:
            prove_jikkou(broker.bootstrap, given.java, Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
