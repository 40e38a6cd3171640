"""`kquota diff` between files, plans, contexts and a real ZooKeeper."""

import re
from pathlib import Path

import pytest

from tests.cli.conftest import Golden, Kquota, validated
from tests.cli.test_plan_apply import stable
from tests.conftest import new_chroot
from tests.support.data import data_rows, data_text
from tests.support.sandbox import Sandbox

FILE = data_text("cli/diff.yaml")
CONFIG = """\
contexts:
  sandbox: {{zookeeper: "{chroot}"}}
  both: {{zookeeper: "{chroot}", bootstrap-server: "127.0.0.1:1"}}
  controllers: {{bootstrap-controller: "127.0.0.1:1"}}
"""


@pytest.fixture
def live(kquota: Kquota, chroot: str, tmp_path: Path) -> dict[str, str]:
    """The environment of a cluster that differs from quotas.yaml in every way."""
    environment = {"KQUOTA_ZOOKEEPER": chroot}
    for arguments in (
        "--user alice --add-config producer_byte_rate=5MB,request_percentage=50%",
        "--user operator-1 --add-config producer_byte_rate=5MB",
        "--user carol --add-config producer_byte_rate=5MB",
    ):
        assert kquota("alter", *arguments.split(), **environment).code == 0
    (tmp_path / "quotas.yaml").write_text(FILE)
    (tmp_path / ".config" / "kquota").mkdir(parents=True)
    (tmp_path / ".config" / "kquota" / "config.yaml").write_text(CONFIG.format(chroot=chroot))
    return environment


@pytest.mark.parametrize("output", ["table", "json", "markdown"])
def test_it_prints_every_format(kquota: Kquota, live: dict[str, str], golden: Golden, output: str) -> None:
    done = kquota("diff", "live", "quotas.yaml", "-o", output, **live)
    assert done.code == 0
    golden(f"diff.{output}", stable(done.out + done.err))
    if output == "json":
        validated(done.out, "plan")


def test_every_kind_of_operand(kquota: Kquota, live: dict[str, str], tmp_path: Path) -> None:
    """A cluster by its options, by its context and from a file is one and the same."""
    (tmp_path / "live").write_text(kquota("describe", "-o", "json", **live).out)
    assert kquota("plan", "quotas.yaml", "--prune", "--out", "plan.json", **live).code == 0
    address = live["KQUOTA_ZOOKEEPER"]
    for one in ("live", "sandbox", "context:sandbox", "file:live", f"zookeeper://{address}"):
        for other in ("live", "file:live", f"zookeeper://{address}"):
            done = kquota("diff", one, other, "--exit-code", **live)
            assert (done.code, done.out, done.err) == (0, "", "no difference\n")
        done = kquota("diff", one, "plan.json", "--exit-code", **live)
        assert (done.code, done.err) == (1, "1 entity only in B, 1 different, 1 only in A\n")
    (tmp_path / "sandbox").mkdir()  # no quotas are in a folder, so the context of that name is meant
    assert kquota("diff", "sandbox", "live", "--exit-code", **live).code == 0
    assert kquota("diff", "plan.json", "plan.json", "--exit-code").code == 0
    assert kquota("diff", "plan.json", "quotas.yaml", "--exit-code").code == 0


def test_what_it_prints_of_a_live_cluster_can_be_applied(kquota: Kquota, live: dict[str, str], tmp_path: Path) -> None:
    live |= {"KQUOTA_JOURNAL": str(tmp_path / "journal")}
    (tmp_path / "plan.json").write_text(kquota("diff", "live", "quotas.yaml", "-o", "json", **live).out)
    assert kquota("apply", "plan.json", "--yes", **live).code == 0
    done = kquota("diff", "live", "quotas.yaml", "--exit-code", **live)
    assert (done.code, done.err) == (0, "no difference; 1 unmanaged not compared\n")


def test_a_value_for_a_while_is_named(kquota: Kquota, live: dict[str, str]) -> None:
    """Who copies it to another cluster would make it permanent there."""
    alter = ("alter", "--user", "carol", "--add-config", "producer_byte_rate=7MB", "--for", "2h")
    assert kquota(*alter, **live).code == 0
    said = r"^B: .*user=carol producer_byte_rate: 7 MB/s until .* UTC, then 5 MB/s"
    assert re.search(said, kquota("diff", "quotas.yaml", "live", **live).err, re.MULTILINE)
    assert "until" not in kquota("diff", "live", "live", **live).err


def test_what_it_prints_of_a_cluster_is_for_that_cluster_alone(
    kquota: Kquota, live: dict[str, str], tmp_path: Path, zookeeper: Sandbox
) -> None:
    """However A names the cluster. The other one has the same quotas, so that nothing else stops the plan there."""
    other = {"KQUOTA_ZOOKEEPER": new_chroot(zookeeper), "KQUOTA_JOURNAL": str(tmp_path / "journal")}
    (tmp_path / "same.yaml").write_text(kquota("describe", "-o", "yaml", **live).out)
    assert kquota("apply", "same.yaml", "--yes", **other).code == 0
    address = live["KQUOTA_ZOOKEEPER"]
    assert kquota("diff", "live", "quotas.yaml", "-o", "json", **live).code == 0
    for number, one in enumerate(("live", "sandbox", "context:sandbox", f"zookeeper://{address}", "0.json")):
        path = tmp_path / f"{number}.json"
        path.write_text(
            kquota("diff", one, "same.yaml" if one == "0.json" else "quotas.yaml", "-o", "json", **live).out
        )
        assert validated(path.read_text(), "plan")["cluster"] == {"address": f"zookeeper://{address}", "id": None}
        done = kquota("apply", path.name, "--yes", **other)
        assert (done.code, "made for zookeeper://" in done.err) == (8, True), done.err
    assert kquota("diff", "live", "same.yaml", "--exit-code", **other).code == 0


def test_the_cluster_of_overlays_is_that_of_the_files_that_have_any(
    kquota: Kquota, live: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "export.yaml").write_text(kquota("describe", "-o", "yaml", **live).out)
    plain = kquota("diff", "export.yaml", "quotas.yaml")
    prod = kquota("diff", "export.yaml", "quotas.yaml", "--cluster", "prod")
    assert "1 MB/s" in plain.out
    assert "2 MB/s" in prod.out
    assert kquota("diff", "quotas.yaml", "quotas.yaml", "--cluster", "prod", "--exit-code").code == 0


@pytest.mark.parametrize(("arguments", "code", "says"), data_rows("refused/diff.txt"))
def test_what_cannot_be_compared(kquota: Kquota, live: dict[str, str], arguments: str, code: str, says: str) -> None:
    done = kquota("diff", *arguments.split(), **live)
    assert (done.code, done.out) == (int(code), "")
    assert says in done.err
