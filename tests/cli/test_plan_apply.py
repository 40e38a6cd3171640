"""plan, apply, undo, history and reconcile against a real ZooKeeper, as scripts and people use them."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from kquota.documents.encoding import schema
from tests.cli.conftest import Golden, Kquota, Ran, quotas, validated
from tests.conftest import new_chroot
from tests.support.data import data_text
from tests.support.sandbox import Sandbox, kazoo

FILE = data_text("cli/team.yaml")


OVERLAYS = "quotas.yaml: no overlay of its clusters is used: --cluster NAME chooses one of prod\n"


def stable(text: str) -> str:
    """Output without what is another one in each run: where the ZooKeeper is, and so the fingerprint."""
    return re.sub(r"127\.0\.0\.1:\d+/test-\d+", "HOST:PORT/CHROOT", re.sub(r'("fingerprint": )"\w+"', r'\1"…"', text))


class Cluster:
    """A kquota that works on one chroot, with a file and a journal of its own."""

    def __init__(self, kquota: Kquota, chroot: str, folder: Path) -> None:
        self.kquota = kquota
        self.file = folder / "quotas.yaml"
        self.file.write_text(FILE, encoding="utf-8")
        self.environment = {"KQUOTA_ZOOKEEPER": chroot, "KQUOTA_JOURNAL": str(folder / "journal")}

    def __call__(self, *arguments: str, **environment: str) -> Ran:
        return self.kquota(*arguments, **self.environment | environment)

    def alter(self, arguments: str) -> None:
        assert (
            self(
                "alter", *arguments.split(), "--yes", KQUOTA_JOURNAL=f"{self.environment['KQUOTA_JOURNAL']}-alters"
            ).code
            == 0
        )

    def quotas(self) -> str:
        return self("describe", "-o", "csv").out


@pytest.fixture
def cluster(kquota: Kquota, chroot: str, tmp_path: Path) -> Cluster:
    cluster = Cluster(kquota, chroot, tmp_path)
    cluster.alter("--user alice --add-config producer_byte_rate=5MB,controller_mutation_rate=3")
    cluster.alter("--user operator-1 --add-config producer_byte_rate=5MB")
    cluster.alter("--user carol --add-config producer_byte_rate=5MB")
    return cluster


@pytest.mark.parametrize("output", ["table", "json", "markdown"])
@pytest.mark.parametrize("prune", [False, True])
def test_plan_prints_every_format(cluster: Cluster, golden: Golden, output: str, prune: bool) -> None:
    done = cluster("plan", "quotas.yaml", "-o", output, *(["--prune"] if prune else []))
    assert done.code == 0
    golden(f"plan{'.prune' if prune else ''}.{output}", stable(done.out + done.err))
    if output == "json":
        validated(done.out, "plan")


DOUBTFUL = data_text("cli/doubtful.yaml")


@pytest.mark.parametrize("output", ["table", "json", "markdown"])
def test_plan_says_what_is_wrong_with_the_quotas_as_they_would_be(
    cluster: Cluster, znodes: Any, golden: Golden, output: str
) -> None:
    """On a cluster of three brokers, and of the file's own doing only."""
    for number in range(3):
        znodes.create(f"/brokers/ids/{number}", b"{}", makepath=True)
    cluster.alter("--user User:bob --add-config consumer_byte_rate=1MB --force")
    cluster.file.write_text(DOUBTFUL)
    done = cluster("plan", "quotas.yaml", "-o", output)
    assert done.code == 0
    golden(f"plan.doubtful.{output}", stable(done.out + done.err))
    if output == "json":
        rules = {found["rule"] for found in validated(done.out, "plan")["findings"]}
        assert rules == {"user-prefix", "unreachable", "internal-principal"}
        assert json.loads(done.out)["brokers"] == 3


def test_a_plan_that_is_kept_has_no_findings_and_one_that_was_printed_is_applied(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.file.write_text(DOUBTFUL)
    printed = cluster("plan", "quotas.yaml", "-o", "json", "--brokers", "2", "--out", "plan.json").out
    assert validated((tmp_path / "plan.json").read_text(), "plan").keys().isdisjoint({"findings", "brokers"})
    (tmp_path / "plan.json").write_text(printed)
    assert cluster("apply", "plan.json", "--yes", "--force").code == 0
    # What is wrong stays wrong when there is nothing left to do.
    again = cluster("plan", "quotas.yaml")
    assert again.err.startswith("nothing changes; ")
    assert again.err.endswith("4 findings about quotas that stay: 'kquota lint' shows them\n")


@pytest.mark.parametrize(
    ("arguments", "heading", "said"),
    [([], "", "; limits are per broker"), (["--brokers", "1"], "", ""), (["--brokers", "4"], "ON 4 BROKERS", "")],
)
def test_plan_says_what_limits_come_to(cluster: Cluster, arguments: list[str], heading: str, said: str) -> None:
    done = cluster("plan", "quotas.yaml", *arguments)
    left = "1 not in the file left as they are (--prune deletes them)"
    assert done.err == f"{OVERLAYS}1 entity to create, 1 to update, 0 to delete{said}; {left}\n"
    assert heading in done.out.splitlines()[0]
    assert ("BROKERS" in done.out) == bool(heading)


def test_plan_knows_the_cluster_from_a_file(cluster: Cluster, kquota: Kquota, tmp_path: Path) -> None:
    """What it says, and the plan that it keeps, are those of the live cluster."""
    (tmp_path / "described.yaml").write_text(cluster("describe", "-o", "yaml").out)
    live = cluster("plan", "quotas.yaml", "--prune", "-o", "json")
    offline = kquota("plan", "quotas.yaml", "--prune", "-o", "json", "--quotas", "described.yaml", "--out", "plan.json")
    assert (offline.code, offline.err) == (
        0,
        f"{OVERLAYS}wrote plan.json; 'kquota apply plan.json' applies it\n",
    )
    said, told = json.loads(live.out), json.loads(offline.out)
    assert (said.pop("cluster")["address"], told.pop("cluster")) == (
        f"zookeeper://{cluster.environment['KQUOTA_ZOOKEEPER']}",
        None,
    )
    assert said.pop("fingerprint") != told.pop("fingerprint")
    assert said == told
    assert cluster("apply", "plan.json", "--yes", "--force").code == 0
    assert "nothing changes" in cluster("plan", "quotas.yaml", "--prune").err
    both = cluster("plan", "quotas.yaml", "--quotas", "described.yaml", "--zookeeper", "127.0.0.1:1")
    assert both.code == 2
    assert "give one of them" in both.err


def test_plan_answers_with_its_exit_code_only_when_asked(cluster: Cluster) -> None:
    assert cluster("plan", "quotas.yaml").code == 0
    assert cluster("plan", "quotas.yaml", "--exit-code").code == 1
    before = cluster.quotas()
    assert cluster("apply", "quotas.yaml", "--yes").code == 0
    done = cluster("plan", "quotas.yaml", "--exit-code")
    assert (done.code, done.out) == (0, "")
    assert done.err == f"{OVERLAYS}nothing changes; 1 not in the file left as they are (--prune deletes them)\n"
    assert cluster("undo", "--yes").code == 0
    assert cluster.quotas() == before


def test_what_describe_prints_plans_to_nothing(cluster: Cluster, tmp_path: Path) -> None:
    for output in ("yaml", "json"):
        (tmp_path / "export").write_text(cluster("describe", "-o", output).out)
        assert cluster("plan", "export", "--prune", "--exit-code").code == 0


def test_a_saved_plan_is_applied_as_it_was_reviewed(cluster: Cluster, tmp_path: Path) -> None:
    assert cluster("plan", "quotas.yaml", "--cluster", "prod", "--prune", "--out", "plan.json").code == 0
    done = cluster("apply", "plan.json", "--yes", "-o", "json")
    assert done.code == 0
    assert validated(done.out, "apply")["outcome"] == "applied"
    assert cluster.quotas().splitlines()[1:] == [
        "alice,,,producer_byte_rate,10485760,bytes/s",
        "alice,,,request_percentage,50,% of one thread",
        "operator-1,,,producer_byte_rate,5000000,bytes/s",
        "bob,<default>,,consumer_byte_rate,2000000,bytes/s",
    ]
    nothing = "nothing changes; 1 unmanaged left as they are\n3 entities already as planned\n"
    again = cluster("apply", "plan.json", "--yes")
    assert (again.code, again.out, again.err) == (0, "", nothing)
    cluster.alter("--user operator-1 --delete-config all")
    cluster.alter("--user operator-1 --add-config producer_byte_rate=5MB")
    cluster.alter("--user bob --client-defaults --delete-config all")
    rest = cluster("apply", "plan.json", "--yes")
    assert (rest.code, "alice" in rest.out, "bob" in rest.out) == (0, False, True)
    assert (
        "1 entity to create, 0 to update, 0 to delete; 1 unmanaged left as they are\n2 entities already as planned\n"
        in rest.err
    )
    assert "1 entity applied, 2 entities already there; " in rest.err
    edited = json.loads((tmp_path / "plan.json").read_text())
    edited["changes"][0]["after"]["producer_byte_rate"] = 1
    (tmp_path / "plan.json").write_text(json.dumps(edited, indent=2))
    done = cluster("apply", "plan.json", "--yes")
    assert done.code == 3
    assert "the fingerprint" in done.complaint


@pytest.mark.parametrize("edit", ["no objections", "weaker", "no cluster", "another cluster"])
def test_a_review_and_a_cluster_cannot_be_edited_out_of_a_plan(cluster: Cluster, tmp_path: Path, edit: str) -> None:
    cluster.file.write_text(FILE.replace("user: alice", "user: admin"))
    assert cluster("plan", "quotas.yaml", "--out", "plan.json").code == 0
    document = json.loads((tmp_path / "plan.json").read_text())
    if edit == "no objections":
        document["objections"] = []
    elif edit == "weaker":
        document["objections"][0]["severity"] = "warning"
    else:
        document["cluster"] = None if edit == "no cluster" else {"address": "zookeeper://elsewhere:2181", "id": None}
    (tmp_path / "plan.json").write_text(json.dumps(document, indent=2))
    before = cluster.quotas()
    done = cluster("apply", "plan.json", "--yes")
    assert (done.code, cluster.quotas()) == (3, before)
    assert "the fingerprint" in done.complaint


def test_a_plan_is_refused_when_the_cluster_changed(cluster: Cluster) -> None:
    assert cluster("plan", "quotas.yaml", "--out", "plan.json").code == 0
    cluster.alter("--user alice --add-config producer_byte_rate=7MB")
    before = cluster.quotas()
    for option in ("--yes", "--dry-run"):
        done = cluster("apply", "plan.json", option)
        assert done.code == 7
        is_now = "producer_byte_rate is 7 MB/s, and was 5 MB/s when planned; nothing is written (plan anew; "
        assert f"user=alice was changed since the plan was made: {is_now}" in done.err
    assert cluster.quotas() == before


def test_a_dry_run_fails_on_what_the_cluster_would_refuse(cluster: Cluster) -> None:
    entry = {"entity": {"ip": "nosuchhost.invalid"}, "values": {"connection_creation_rate": 5}}
    cluster.file.write_text(json.dumps({"kind": "kquota.quotas", "version": 1, "quotas": [entry]}), encoding="utf-8")
    for option in ("--yes", "--dry-run"):
        done = cluster("apply", "quotas.yaml", option)
        assert (done.code, "not a valid IP or resolvable host" in done.err) == (3, True), done


def test_nothing_is_done_without_a_yes(cluster: Cluster) -> None:
    before = cluster.quotas()
    done = cluster("apply", "quotas.yaml")
    assert done.code == 8
    assert done.err.splitlines()[-1] == (
        "kquota: no confirmation: stdin is not a terminal (--yes applies without asking)"
    )
    assert cluster.quotas() == before


def test_a_dry_run_of_apply_writes_nothing(cluster: Cluster) -> None:
    """Of a file and of a saved plan; whoever has a saved plan and says plan is told of it."""
    before = cluster.quotas()
    assert cluster("plan", "quotas.yaml", "--out", "plan.json").code == 0
    for file in ("quotas.yaml", "plan.json"):
        done = cluster("apply", file, "--dry-run")
        assert (done.code, "dry run: nothing was written" in done.err) == (0, True), done
        assert "user=alice" in done.out
        assert validated(cluster("apply", file, "--dry-run", "-o", "json").out, "plan")["changes"]
    done = cluster("plan", "plan.json")
    assert done.code == 3
    assert "plan.json is a plan already ('kquota apply plan.json --dry-run' shows it)" in done.err
    assert cluster.quotas() == before
    assert not cluster("history").out


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 8), ("", 8)])
def test_a_terminal_is_asked(cluster: Cluster, answer: str, code: int) -> None:
    before = cluster.quotas()
    terminal, other = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "kquota", "apply", str(cluster.file)],
        stdin=other,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | cluster.environment | {"PYTHONPATH": str(Path(__file__).parents[2])},
        text=True,
    )
    os.write(terminal, f"{answer}\n".encode())
    _, err = process.communicate(timeout=180)
    os.close(other)
    os.close(terminal)
    assert process.returncode == code
    assert re.search(r"Apply to zookeeper://\S+ \(1 entity to create, 1 to update, 0 to delete\)\?", err)
    assert err.count("1 entity to create") == 1, "the question says it"
    assert (cluster.quotas() == before) == (answer != "y")
    assert ("kquota: nothing was applied: the answer was no" in err) == (answer != "y")


@pytest.mark.parametrize(
    ("text", "arguments", "complaint"),
    [
        ("user: admin", [], "create user=admin, which is protected by user=/admin/"),
        ("user: alice", ["--prune", "--max-deleted", "5%"], "delete"),
    ],
)
def test_guards_refuse_and_force_passes(cluster: Cluster, text: str, arguments: list[str], complaint: str) -> None:
    for number in range(10):
        cluster.alter(f"--client c{number} --add-config producer_byte_rate=1")
    cluster.file.write_text(FILE.replace("user: alice", text))
    before = cluster.quotas()
    done = cluster("apply", "quotas.yaml", "--yes", *arguments)
    assert done.code == 8
    assert complaint in done.err
    assert cluster.quotas() == before
    assert cluster("apply", "quotas.yaml", "--yes", "--force", *arguments).code == 0
    assert cluster.quotas() != before


def test_a_saved_plan_remembers_what_its_file_forbids(cluster: Cluster) -> None:
    cluster.file.write_text(FILE.replace("user: alice", "user: admin"))
    before = cluster.quotas()
    done = cluster("plan", "quotas.yaml", "--out", "plan.json", "-o", "json")
    assert done.code == 0
    assert validated(done.out, "plan")["objections"] == [
        {
            "name": "protected",
            "severity": "refusal",
            "message": "it would create user=admin, which is protected by user=/admin/",
            "lifted_by": ["--force"],
        }
    ]
    assert "apply will refuse this: it would create user=admin" in done.err
    done = cluster("apply", "plan.json", "--yes")
    assert (done.code, cluster.quotas()) == (8, before)
    assert "protected by user=/admin/" in done.complaint
    assert cluster("apply", "plan.json", "--yes", "--force").code == 0
    assert cluster.quotas() != before


def test_a_plan_of_one_cluster_is_refused_on_another(cluster: Cluster, zookeeper: Sandbox) -> None:
    """By Kafka's cluster id where brokers keep one, else by the address."""
    assert cluster("plan", "quotas.yaml", "--out", "plan.json").code == 0
    here = cluster.environment["KQUOTA_ZOOKEEPER"]
    elsewhere = new_chroot(zookeeper)
    done = cluster("apply", "plan.json", "--yes", "--force", "--zookeeper", elsewhere)
    assert done.code == 8
    assert f"the plan was made for zookeeper://{here}, and this is zookeeper://{elsewhere}" in done.complaint
    with kazoo(zookeeper.connect) as client:
        for chroot, id in ((here, "one"), (elsewhere, "two")):
            path = f"/{chroot.partition('/')[2]}/cluster/id"
            client.create(path, json.dumps({"version": "1", "id": id}).encode(), makepath=True)
        assert cluster("plan", "quotas.yaml", "--out", "plan.json").code == 0
        assert "cluster id one" in cluster("apply", "plan.json", "--yes", "--zookeeper", elsewhere).complaint
        # The same cluster under another name.
        client.set(f"/{elsewhere.partition('/')[2]}/cluster/id", b'{"version":"1","id":"one"}')
    assert cluster("apply", "plan.json", "--yes", "--zookeeper", elsewhere).code == 7  # its quotas are others
    assert cluster("apply", "plan.json", "--yes").code == 0


def test_alter_and_apply_refuse_the_same(cluster: Cluster) -> None:
    """And plan and a dry run announce it."""
    for number, user in enumerate(("User:alice", "<default>", "alice ", "*", "default", "bob,carol")):
        cluster.file.write_text(quotas(**{user: f"1{number}MB"}))
        alter = ("alter", "--user", user, "--add-config", f"producer_byte_rate=1{number}MB", "--yes")
        planned = cluster("plan", "quotas.yaml")
        refused = [cluster(*alter), cluster(*alter, "--dry-run"), cluster("apply", "quotas.yaml", "--yes")]
        assert "kquota: warning: apply will refuse this: user=" in planned.err
        assert [done.code for done in refused] == [8, 8, 8]
        assert len({done.complaint for done in refused}) == 1
        assert cluster("apply", "quotas.yaml", "--yes", "--force").code == 0


def test_undo_and_history(cluster: Cluster, tmp_path: Path) -> None:
    before = cluster.quotas()
    assert cluster("history").err.startswith("no entries in the journal ")
    assert cluster("undo", "--yes").code == 3
    assert cluster("apply", "quotas.yaml", "--yes").code == 0
    entry = validated_history(cluster)[0]
    assert (entry["command"], entry["outcome"]) == ("apply", "applied")
    undone = cluster("undo", entry["id"], "--yes")
    assert undone.code == 0
    assert f"cluster: zookeeper://{cluster.environment['KQUOTA_ZOOKEEPER']}" in undone.err.splitlines()
    assert cluster.quotas() == before
    undo = validated_history(cluster)[1]
    assert (undo["command"], undo["undoes"]) == ("undo", entry["id"])
    assert "undone by 2" in cluster("history").out.splitlines()[2]
    # An undo is not undone by chance, but can be by name.
    assert cluster("undo", "--yes").code == 3
    assert cluster("undo", undo["id"], "--yes").code == 0
    assert cluster.quotas() != before
    shown = cluster("history", entry["id"])
    assert "producer_byte_rate" in shown.out
    (tmp_path / "journal" / "zz.json").write_text("{")
    assert cluster("history").code == 3


def validated_history(cluster: Cluster) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads(cluster("history", "-o", "json").out)["entries"]
    for entry in entries:
        Draft202012Validator(schema("journal")).validate(entry)
        Draft202012Validator(schema("plan")).validate(entry["plan"])
    return entries


def test_what_is_for_a_time_is_taken_back(cluster: Cluster, tmp_path: Path) -> None:
    before = cluster.quotas()
    assert cluster("apply", "quotas.yaml", "--yes", "--for", "1h").code == 0
    (entry,) = validated_history(cluster)
    assert abs(entry["expires"] - entry["started"] - 3_600_000) < 60_000
    assert cluster("reconcile").code == 0
    assert cluster.quotas() != before
    # An hour later.
    (file,) = (tmp_path / "journal").glob("*.json")
    file.write_text(json.dumps({**entry, "expires": entry["started"] - 1}))
    cluster.alter("--user alice --add-config producer_byte_rate=7MB")
    done = cluster("reconcile")
    assert (done.code, "user=alice" in done.err) == (7, True)
    lines = before.splitlines()
    assert [line for line in cluster.quotas().splitlines() if line not in lines] == [
        "alice,,,producer_byte_rate,7000000,bytes/s"
    ], "all but the value that somebody else set is as before, and it is the end of the lease"
    done = cluster("reconcile")
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith("nothing is due; no lease (journal ")


def test_a_plan_of_too_large_a_share_names_what_allows_it(kquota: Kquota, tmp_path: Path) -> None:
    for name, value in (("before", 1), ("after", 2)):
        users = "".join(
            f"  - {{entity: {{user: u{n}}}, values: {{producer_byte_rate: {value}MB}}}}\n" for n in range(12)
        )
        (tmp_path / f"{name}.yaml").write_text(f"kind: kquota.quotas\nversion: 1\nquotas:\n{users}")
    said = kquota("plan", "after.yaml", "--quotas", "before.yaml").err
    assert "refuse this: it would change 12 of 12 entities (100 %, at most 50 %) (--max-changed allows more)" in said
