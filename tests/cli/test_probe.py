"""`kquota probe` on a real broker: it throttles as predicted, no bound is exceeded, and nothing is left behind."""

import json
import re
import signal
import time
from datetime import UTC
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kquota.cli import main, session
from kquota.documents.encoding import schema
from kquota.errors import Refused
from tests.audit.request_lines import parse_line
from tests.brokers.kafka import KafkaBroker
from tests.cli.conftest import Kquota, TerminalStream, quotas
from tests.support.data import data_rows
from tests.support.processes import started
from tests.support.waiting import PATIENCE_S, until
from tools.accuracy.probes import CASES, TOPIC, Case, fill, login_of, run

SECONDS = 7
ROOT = str(Path(__file__).parents[2])


@pytest.fixture(scope="module")
def broker(broker: KafkaBroker) -> KafkaBroker:
    """With a topic to read."""
    fill(broker)
    return broker


def topics(broker: KafkaBroker) -> set[str]:
    return set(AdminClient(broker.client()).list_topics(timeout=60).topics)


def bytes_of(broker: KafkaBroker, client_id: str, api: str) -> int:
    """What the broker charged a client-id for, by its own log."""
    lines = [line for line in broker.request_log.read_text().splitlines() if f'"clientId":"{client_id}"' in line]
    events = [parse_line(line, UTC) for line in lines]
    return sum(event.bytes for event in events if event.api == api)


@pytest.mark.parametrize("quiet", [[], ["--quiet"]])
def test_a_terminal_sees_how_far_a_probe_is(quiet: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A bar over the time that it takes, which does not need a broker to move."""
    terminal = TerminalStream()

    def moved() -> bool:
        return re.search(r"probing .* [1-9]\d*%", terminal.getvalue()) is not None

    def probe(*_: object) -> None:
        end = time.monotonic() + (0.5 if quiet else PATIENCE_S)
        while not moved() and time.monotonic() < end:
            time.sleep(0.01)
        raise Refused("enough was seen")

    monkeypatch.setattr(session, "open_brokers", lambda access: ("nowhere:9092", None))
    monkeypatch.setattr("kquota.cli.commands.probe.run", probe)
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    options = ["--duration", "5s", "--yes", "--bootstrap-server", "nowhere:9092", *quiet]
    assert main.run(["probe", "produce", "--topic", "load", *options]) == 8
    assert (moved(), "probing" in terminal.getvalue()) == (not quiet, not quiet)
    assert "kquota: enough was seen" in terminal.getvalue()


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.probe))
def test_a_broker_throttles_as_predicted(broker: KafkaBroker, case: Case) -> None:
    before = topics(broker)
    # On a machine that is busy with something else, seconds are too few to offer more than the limit: then minutes.
    for seconds in (SECONDS, 60, 240):
        document = run(broker, case, seconds)
        observed = document["observed"]["throttle_time_ms"]
        if observed > 500:
            break

    jsonschema.validate(document, schema("probe"))
    assert (document["limit"], document["key"], document["ended_by"]) == (case.limit, case.key.value, "duration")
    least, most = (document["predicted"][side]["throttle_time_ms"] for side in ("least", "most"))
    assert observed > 500, document
    # Where the client is played, the last throttle may begin within the run in one account and after it in the other.
    last = 1000 if case.probe == "fetch" else 0
    assert least * 0.75 - last <= observed <= most * 1.25 + last, document
    assert least <= most, document
    assert topics(broker) - before <= {"__consumer_offsets"}


@pytest.mark.parametrize("probe", ["produce", "fetch"])
def test_the_bound_holds_by_the_brokers_own_log(kquota: Kquota, broker: KafkaBroker, probe: str) -> None:
    client_id = f"bounded-{probe}"
    done = kquota(
        *("probe", probe, "--topic", TOPIC, "--client-id", client_id, "--rate", "50GB", "--max-bytes", "300kB"),
        *("--duration", "5s", "--yes", "-o", "json", "--bootstrap-server", broker.bootstrap),
    )

    assert done.code == 0
    assert done.err.rstrip().endswith("ended by --max-bytes")
    assert "was too slow for the rate" in done.err
    charged = json.loads(done.out)["charged"]
    # A broker answers before it writes the line.
    until(lambda: bytes_of(broker, client_id, probe) >= charged, "the broker's log never has what the probe counted")
    assert 100_000 < bytes_of(broker, client_id, probe) <= 300_000


def test_batches_that_are_larger_than_size_are_read(kquota: Kquota, broker: KafkaBroker) -> None:
    """A broker answers with a whole batch. librdkafka dropped the connection, and nothing was counted."""
    admin = AdminClient(broker.client())
    admin.create_topics([NewTopic("large", 1, 1)])["large"].result(60)
    producer = Producer(broker.client() | {"message.max.bytes": 2_000_000})
    for _ in range(5):
        producer.produce("large", b"x" * 900_000)
    producer.flush(60)
    where = ("--duration", "3s", "--yes", "-o", "json", "--bootstrap-server", broker.bootstrap)
    done = kquota("probe", "fetch", "--topic", "large", "--size", "50kB", "--client-id", "large", *where)
    assert done.code == 0, done.err
    document = json.loads(done.out)

    assert document["charged"] > 900_000, done.err
    admin.delete_topics(["large"])["large"].result(60)
    # The last answers may be under way when the time is up.
    assert document["charged"] >= bytes_of(broker, "large", "fetch") - 2_000_000


def test_a_login_that_may_not_read_quotas_is_given_them(kquota: Kquota, broker: KafkaBroker, tmp_path: Path) -> None:
    (tmp_path / "q.yaml").write_text(quotas(alice=7_000_000))
    (tmp_path / "admin").mkdir()
    where = ("--bootstrap-server", broker.sasl_bootstrap, "--command-config", str(login_of("alice", tmp_path)))
    probed = ("probe", "produce", "--topic", TOPIC, "--duration", "1s", "--yes", "-o", "json", *where)
    of_file = kquota(*probed, "--quotas", "q.yaml")
    of_admin = kquota(*probed, "--admin-config", str(login_of("bob", tmp_path / "admin")))

    assert json.loads(of_file.out)["limit"] == 7_000_000, of_file.err
    assert (json.loads(of_admin.out)["limit"], json.loads(of_admin.out)["client"]["user"]) == (None, "alice")


def test_the_rate_holds(kquota: Kquota, broker: KafkaBroker) -> None:
    arguments = ("--rate", "100kB", "--size", "10kB", "--duration", "3s", "--yes", "-o", "json")

    def is_reached(probe: str) -> bool:
        """It is never more; a busy machine may be too slow for it."""
        done = kquota("probe", probe, "--topic", TOPIC, *arguments, "--bootstrap-server", broker.bootstrap)
        charged = int(json.loads(done.out)["charged"])
        assert charged < 340_000, done.err
        return charged > 200_000

    for probe in ("produce", "fetch"):
        until(partial(is_reached, probe), f"{probe} never keeps up")


@pytest.mark.parametrize(
    "signals",
    [(signal.SIGINT,), (signal.SIGTERM,), (signal.SIGTERM, signal.SIGTERM)],
    ids=["INT", "TERM", "TERM twice"],
)
def test_after_a_signal_no_topic_is_left_and_what_was_seen_is_printed(
    broker: KafkaBroker, signals: tuple[signal.Signals, ...]
) -> None:
    process = started(
        [
            *("probe", "produce", "--topic", "ended", "--create-topic", "--yes"),
            *("--duration", "60s", "-o", "json", "--bootstrap-server", broker.bootstrap),
        ]
    )
    try:
        until(lambda: "ended" in topics(broker))
        time.sleep(3)  # the answer to the first request may still be on its way
        for number in signals:
            process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()

    assert process.returncode == 130, err
    document: dict[str, Any] = json.loads(out)
    assert document["ended_by"] == "interrupt"
    assert document["events"] > 0
    assert "ended" not in topics(broker)


def test_the_user_is_that_of_the_login(kquota: Kquota, broker: KafkaBroker, tmp_path: Path) -> None:
    login = login_of("alice", tmp_path)
    done = kquota(
        *("probe", "produce", "--topic", TOPIC, "--duration", "5s", "--yes", "-o", "json"),
        *("--bootstrap-server", broker.sasl_bootstrap, "--command-config", str(login)),
    )
    assert done.code == 0, done.err
    assert f"cluster: kafka://{broker.sasl_bootstrap}\n" in done.err
    document = json.loads(done.out)
    assert document["client"] == {"user": "alice", "client-id": "kquota-probe"}
    assert document["events"] > 0


def test_a_topic_of_its_own_comes_and_goes(kquota: Kquota, broker: KafkaBroker) -> None:
    arguments = ("--create-topic", "--duration", "1s", "--yes", "--bootstrap-server", broker.bootstrap)
    assert kquota("probe", "produce", "--topic", "own", *arguments).code == 0
    assert "own" not in topics(broker)
    again = kquota("probe", "produce", "--topic", TOPIC, *arguments)
    assert (again.code, TOPIC in topics(broker)) == (3, True), "a topic that was there is never deleted"
    assert "already exists" in again.complaint


@pytest.mark.parametrize(("arguments", "code", "words"), data_rows("refused/probe.txt"))
def test_what_is_wrong_is_said_before_anything_is_sent(
    kquota: Kquota, broker: KafkaBroker, arguments: str, code: str, words: str
) -> None:
    done = kquota("probe", *arguments.split(), "--bootstrap-server", broker.bootstrap)

    assert (done.code, done.out) == (int(code), "")
    assert words in done.err
