"""`kquota generate` as scripts run it."""

from pathlib import Path

from kquota.documents.foreign.prometheus import shipped
from tests.cli.conftest import Kquota

SAMPLES = Path(__file__).parents[1] / "data" / "samples"


def test_on_the_command_line(kquota: Kquota, tmp_path: Path) -> None:
    swallowed = kquota("generate", "prometheus", "--metrics", str(SAMPLES / "scrape-swallowed.prom"))
    old = kquota("generate", "prometheus", "--kafka-version", "3.7", "--by", "cluster")
    nothing = kquota("generate", "grafana", "--metrics", str(tmp_path / "gone.prom"))

    assert swallowed.code == 0
    assert "'kquota generate jmx-exporter' writes rules that keep them" in swallowed.err
    left_out = (
        "no rules for consumer_byte_rate, request_percentage, controller_mutation_rate, connection_creation_rate: no"
    )
    assert left_out in swallowed.err
    assert (old.code, old.err) == (0, "")
    assert "> 1.1\n" in old.out
    assert "on (cluster, clientId, resource, user)" in " ".join(old.out.split())
    assert nothing.code == 4
    assert kquota("generate", "jmx-exporter").out == shipped("jmx-exporter.yaml")
