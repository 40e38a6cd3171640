"""`kquota audit` of samples: from files, and from a live Prometheus, to findings."""

import json
import re
import shutil
import time
from pathlib import Path

import pytest

from tests.audit.prometheus_server import RECORDED, fake_prometheus
from tests.cli.conftest import Golden, Kquota, validated
from tests.support.data import data_rows

DATA = RECORDED.parent
QUOTAS = ["--quotas", str(DATA / "quotas.json")]
FILES = ["kafka-jmx.csv", "kafka-jmx-lines.csv", "prometheus-raw.json", "prometheus-range.json", "federate.prom"]


@pytest.mark.parametrize("output", ["table", "csv", "json"])
def test_every_format(kquota: Kquota, golden: Golden, output: str) -> None:
    """Bounds where requests have numbers."""
    done = kquota("audit", str(DATA / "kafka-jmx.csv"), *QUOTAS, "--all", "-o", output)

    assert done.code == 0, done.err
    golden(f"audit.samples.{output}", done.out)


@pytest.mark.parametrize("file", FILES)
def test_every_source(kquota: Kquota, tmp_path: Path, file: str) -> None:
    """What it is is seen; the document is what its schema says."""
    quotas = tmp_path / "all.json"
    everyone = {"entity": {"user": {"default": True}}, "values": {"producer_byte_rate": 1000}}
    quotas.write_text(json.dumps({"kind": "kquota.quotas", "version": 1, "quotas": [everyone]}))

    done = kquota("audit", str(DATA / file), "--quotas", str(quotas), "--broker", "1", "-o", "json")

    assert done.code == 0, done.err
    document = validated(done.out, "audit")
    assert any(finding["verdict"] == "throttled" for finding in document["findings"])
    assert document["data"]["rejected"] == 0


@pytest.mark.parametrize(
    ("arguments", "throttled", "free"),
    [([], 0, 2), (["--in-force"], 4, 2), (["--step", "5s"], 0, 0), (["--step", "5s", "--in-force"], 4, 0)],
)
def test_a_live_prometheus(kquota: Kquota, arguments: list[str], throttled: int, free: int) -> None:
    """Its last hour; a value in each step proves less than every sample does."""
    shift = time.time() - 120 - json.loads(RECORDED.read_text())["data"]["result"][0]["values"][-1][0]
    with fake_prometheus(lambda: shift) as prometheus:
        done = kquota("audit", "--prometheus", prometheus.url, *QUOTAS, "--broker", "1", "-o", "json", *arguments)

    assert done.code == 0, done.err
    verdicts = [finding["verdict"] for finding in json.loads(done.out)["findings"]]
    assert len(verdicts) == 7
    assert verdicts.count("not throttled") == free
    if throttled:
        assert verdicts.count("throttled") == throttled


@pytest.mark.parametrize(("arguments", "code", "says"), data_rows("refused/audit_samples.txt"))
def test_what_is_wrong(kquota: Kquota, tmp_path: Path, arguments: str, code: str, says: str) -> None:
    shutil.copy(DATA / "kafka-jmx.csv", tmp_path)
    done = kquota("audit", *arguments.split(), *QUOTAS)

    assert done.code == int(code)
    assert says in done.err


def test_a_recommendation_needs_requests(kquota: Kquota) -> None:
    """Samples do not tell how often a client would be throttled."""
    done = kquota("recommend", str(DATA / "kafka-jmx.csv"), *QUOTAS)

    assert done.code == 3
    assert "there are samples, and a recommendation needs each request" in done.complaint
    for option in ("--prometheus", "--in-force", "--source=openmetrics"):
        assert kquota("recommend", str(DATA / "kafka-jmx.csv"), option, *QUOTAS).code == 2


def test_samples_are_called_samples(kquota: Kquota) -> None:
    """Wherever it is said how much was read."""
    arguments = ["audit", str(DATA / "kafka-jmx.csv"), *QUOTAS]
    for more in ([], ["--against", QUOTAS[1]]):
        said = kquota(*arguments, *more).err
        assert re.search(r"\d samples read", said), said
    assert re.search(r"\d samples, ", kquota(*arguments, "--against", QUOTAS[1], "-o", "markdown").out)


def test_exit_codes(kquota: Kquota) -> None:
    """Undetermined is an answer of its own."""
    arguments = ["audit", str(DATA / "kafka-jmx.csv"), *QUOTAS]

    assert kquota(*arguments, "--fail-on", "throttled").code == 0
    assert kquota(*arguments, "--fail-on", "undetermined").code == 1
    assert kquota(*arguments, "--fail-on", "throttled", "--in-force").code == 1
