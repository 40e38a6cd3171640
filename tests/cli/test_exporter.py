"""`kquota exporter` as scripts run it."""

import signal
import urllib.request
from pathlib import Path

import pytest

from tests.cli.conftest import Kquota
from tests.support.processes import started

SAMPLES = Path(__file__).parents[1] / "data" / "samples"
PAGE = str(SAMPLES / "scrape-resource.prom")
QUOTAS = str(SAMPLES / "quotas.json")


def test_once(kquota: Kquota) -> None:
    done = kquota("exporter", "--metrics", PAGE, "--quotas", QUOTAS, "--once", "--label", "cluster=prod")

    assert (done.code, done.err) == (0, "")
    assert (
        'kquota_limit{clientId="web-edge",cluster="prod",entity="client-id=<default>",key="producer_byte_rate"'
        ',level="default client-id",resource="Produce"} 40000.0\n'
    ) in done.out


def test_drift(kquota: Kquota, tmp_path: Path) -> None:
    wanted = tmp_path / "wanted.yaml"
    wanted.write_text("kind: kquota.quotas\nversion: 1\nquotas: []\n")
    done = kquota("exporter", "--quotas", QUOTAS, "--against", str(wanted), "--once")

    assert (done.code, done.err) == (0, "")
    assert 'kquota_drift_entities{state="unexpected"} 7.0\n' in done.out
    assert "kquota_limit" not in done.out


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["--listen", "0.0.0.0:0"], 8, "can be reached from other hosts"),
        (["--listen", ":0"], 8, "every address:0 can be reached"),
        (["--listen", "nonsense"], 2, "--listen takes HOST:PORT"),
        (["--label", "9=x", "--once"], 3, "no label"),
        (["--cluster", "prod", "--once"], 2, "--cluster is of the file of --against"),
        (["--prometheus-match", "a", "--once"], 2, "of --prometheus URL"),
        (["--metrics", PAGE, "--prometheus", "http://p:9090", "--once"], 3, "one source"),
    ],
)
def test_refused(kquota: Kquota, arguments: list[str], code: int, complaint: str) -> None:
    done = kquota("exporter", "--quotas", QUOTAS, *arguments)

    assert done.code == code
    assert complaint in done.err
    assert done.out == ""


def test_it_goes_on_serving_when_the_quotas_are_lost(tmp_path: Path) -> None:
    """With the metrics of before and their age; SIGTERM ends it."""
    quotas = tmp_path / "quotas.json"
    quotas.write_text(Path(QUOTAS).read_text())
    options = ["--metrics", PAGE, "--quotas", str(quotas), "--listen", "127.0.0.1:0", "--interval", "1s"]
    with started(["exporter", *options]) as process:
        assert process.stderr is not None
        url = process.stderr.readline().split()[1].rstrip(",")
        quotas.unlink()
        lost = process.stderr.readline()
        with urllib.request.urlopen(url, timeout=300) as answer:
            text = answer.read().decode()
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()

    assert "the metrics of before stay" in lost
    assert 'kquota_part_up{part="quotas"} 0.0\n' in text
    assert 'user="alice"} 60000.0\n' in text
    assert process.returncode == 0
    assert "Traceback" not in rest
