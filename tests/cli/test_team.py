"""A journal that the cluster keeps: what one host writes, every other one sees, takes back and ends."""

from pathlib import Path

import pytest

from tests.cli.conftest import Kquota, quotas
from tests.cli.test_leases import let_time_pass
from tests.support.waiting import until


@pytest.fixture
def prod(chroot: str, tmp_path: Path) -> dict[str, str]:
    """The environment of hosts with a context whose journal the cluster keeps."""
    config = tmp_path / "config.yaml"
    config.write_text(f"current-context: prod\ncontexts:\n  prod: {{zookeeper: {chroot}, journal: cluster}}\n")
    return {"KQUOTA_CONFIG": str(config)}


def test_another_host_sees_undoes_and_ends_what_one_wrote(kquota: Kquota, prod: dict[str, str], tmp_path: Path) -> None:
    one, other = ({**prod, "XDG_STATE_HOME": str(tmp_path / host)} for host in ("one", "other"))
    alter = ("alter", "--user", "alice", "--yes", "--add-config")
    assert kquota(*alter, "producer_byte_rate=1MB", "-m", "OPS-1", **one).code == 0
    assert kquota("history", **other).out.count("OPS-1") == 1
    assert kquota("undo", "--yes", **other).code == 0
    assert kquota("describe", "-o", "name", **one).out == ""
    assert "undone by 2" in kquota("history", **one).out

    assert "in the cluster, as 'kquota help journal' says" in kquota("doctor", **one).out
    leased = kquota(*alter, "producer_byte_rate=3MB", "--for", "1h", **one)
    assert "kquota reconcile --quiet --context prod --journal cluster" in leased.err
    assert "entry 3" in kquota("describe", **other).err
    (tmp_path / "q.yaml").write_text(quotas(alice="3MB"))
    assert "this makes it permanent" in kquota("plan", "q.yaml", **other).err
    assert kquota(*alter, "producer_byte_rate=3MB", "--for", "1s", **one).code == 0
    until(lambda: not kquota("reconcile", **other).err.startswith("nothing is due"), pause_s=0.5)
    assert kquota("describe", "-o", "name", **one).out == ""
    assert not list(tmp_path.glob("*/kquota/journal/*"))
    assert not (tmp_path / "cluster").exists()


def test_the_option_comes_before_the_variable_and_that_before_the_context(
    kquota: Kquota, prod: dict[str, str], tmp_path: Path
) -> None:
    alter = ("alter", "--user", "alice", "--yes", "--add-config")
    assert kquota(*alter, "producer_byte_rate=1MB", KQUOTA_JOURNAL=str(tmp_path / "j"), **prod).code == 0
    assert "no entries in the journal cluster" in kquota("history", **prod).err
    done = kquota(*alter, "producer_byte_rate=2MB", "--journal", str(tmp_path / "k"), **prod)
    # The number is that of this journal, and another one's entry of that number is another write.
    assert done.err.endswith(f"'kquota undo 1 --journal {tmp_path / 'k'}' takes it back\n")
    assert "no entries in the journal cluster" in kquota("history", **prod).err
    for folder in ("j", "k"):
        assert len(list((tmp_path / folder).glob("*.json"))) == 1
    assert kquota("history", "--journal", str(tmp_path / "k"), **prod).code == 0


def test_an_address_has_the_journal_of_its_context(kquota: Kquota, prod: dict[str, str], chroot: str) -> None:
    alter = ("alter", "--user", "alice", "--yes", "--add-config", "producer_byte_rate=1MB")
    done = kquota(*alter, **prod, KQUOTA_ZOOKEEPER=chroot)
    assert done.err.endswith("'kquota undo 1' takes it back\n")
    assert "user=alice" in kquota("history", **prod).out
    assert "user=alice" in kquota("history", "--zookeeper", chroot, **prod).out
    assert kquota("undo", "--yes", "--zookeeper", chroot, **prod).code == 0
    assert "journal" in kquota("config", "view", **prod, KQUOTA_ZOOKEEPER=chroot).out


def test_a_write_needs_the_rules_of_the_contexts(
    kquota: Kquota, prod: dict[str, str], chroot: str, tmp_path: Path
) -> None:
    """A slip in the file is no way around its journal and its rule of a reason."""
    with Path(prod["KQUOTA_CONFIG"]).open("a") as config:
        config.write("contexts: {}\n")
    alter = ("alter", "--user", "alice", "--add-config", "producer_byte_rate=1MB", "--zookeeper", chroot)

    done = kquota(*alter, **prod)

    assert (done.code, kquota("describe", "--zookeeper", chroot, "-o", "name").out) == (3, "")
    assert "'contexts' is given twice" in done.complaint
    assert kquota("history", "--zookeeper", chroot, **prod).code == 3
    assert kquota(*alter, "-m", "OPS-1", "--journal", str(tmp_path / "j"), **prod).code == 0


def test_leases_in_the_usual_folder_are_named_beside_another_journal(
    kquota: Kquota, chroot: str, prod: dict[str, str], tmp_path: Path
) -> None:
    """A context may name another journal while leases are on, and a line for cron may be older than that."""
    alter, live = ("alter", "--user", "alice", "--add-config", "producer_byte_rate=1MB"), ("--zookeeper", chroot)
    usual = tmp_path / ".state" / "kquota" / "journal"
    line = kquota(*alter, "--for", "1h", *live).err.splitlines()[-1]
    assert line.startswith("*/5 * * * * "), "on a line of its own, to be copied"
    assert line.endswith(f"reconcile --quiet --zookeeper {chroot} --journal {usual}")
    reconcile = f"'kquota reconcile --zookeeper {chroot} --journal {usual}'"
    said = f"the journal {usual} has 1 lease of this cluster, which {reconcile} ends\n"
    assert said in kquota("reconcile", *live, **prod).err
    assert kquota("reconcile", "--quiet", *live, **prod).err == ""
    assert ": 1, none overdue" in kquota("doctor", **prod).out

    let_time_pass(usual)
    assert kquota("reconcile", "--quiet", *live, **prod).err == f"kquota: warning: {said}"
    doctor = kquota("doctor", **prod).out
    assert "1 of 1 are overdue" in doctor
    assert f"run 'kquota reconcile --journal {usual}'" in doctor
    assert f"'kquota history --journal {usual}' lists them" in doctor
    assert kquota("reconcile", *live, "--journal", str(usual), **prod).code == 0
    assert kquota("reconcile", "--quiet", *live, **prod).err == ""


def test_an_undo_knows_newer_writes_in_the_usual_folder(
    kquota: Kquota, chroot: str, prod: dict[str, str], tmp_path: Path
) -> None:
    """There the drop-in keeps its writes, whatever the journal of the context."""
    assert kquota("alter", "--user", "alice", "--add-config", "producer_byte_rate=1MB", **prod).code == 0
    drop_in = ("kafka-configs", "--zookeeper", chroot, "--alter", "--user", "bob", "--add-config")
    assert kquota(*drop_in, "producer_byte_rate=2000000", **prod).code == 0
    folder = tmp_path / ".state" / "kquota" / "journal"

    refused = kquota("undo", "--yes", **prod)
    assert (refused.code, kquota("describe", "-o", "name", **prod).out.split()) == (8, ["user=alice", "user=bob"])
    assert refused.complaint.startswith("kquota: refused: the last write, entry 1: kafka-configs of ")
    assert f"is in the journal {folder}; an undo here goes further back, to entry 1: alter of" in refused.complaint
    hint = f"('kquota undo 1' if you mean it; 'kquota undo 1 --journal {folder}' reverts the last one)"
    assert refused.complaint.endswith(hint)
    assert "goes further back\n" in kquota("undo", "--dry-run", **prod).err
    (folder / "99991231T000000Z-later.json").write_text("no entry")
    assert "99991231T000000Z-later.json is no entry of the journal" in kquota("undo", "--dry-run", **prod).err
    assert kquota("undo", "--yes", "--user", "alice", **prod).code == 0
    nothing = kquota("undo", "--yes", **prod).complaint
    where = "'kquota history --journal cluster' lists what was done, by number"
    assert nothing.endswith(f"({where}; --journal names another journal, such as a folder)")


def test_without_a_cluster_its_journal_is_an_error(kquota: Kquota) -> None:
    refused = kquota("history", "--journal", "cluster")
    assert (refused.code, "no cluster" in refused.err) == (2, True)
    refused = kquota("alter", "--user", "a", "--add-config", "producer_byte_rate=1MB", "--journal", "cluster",
                     "--bootstrap-controller", "127.0.0.1:1")  # fmt: skip
    assert (refused.code, "keeps no journal" in refused.err) == (3, True)
