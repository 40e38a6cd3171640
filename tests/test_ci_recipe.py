"""The recipe for pull requests (docs/ci), as a script, in a real repository."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyarrow import csv, parquet

from tests.support import examples
from tests.support.data import data_text

ROOT = Path(__file__).resolve().parents[1]
BASE = data_text("cli/ci_recipe.yaml")
HARMFUL = BASE.replace("bob}, values: {producer_byte_rate: 50kB}", "bob}, values: {producer_byte_rate: 20kB}")
WORSE = BASE.replace("20kB", "5kB")
"""A limit lowered further that throttles already."""
HARMLESS = BASE.replace("20kB", "30kB")
START_MS = 1_773_219_600_000
USAGE = "time_ms,broker,user,client_id,api,bytes\n" + "".join(
    f"{START_MS + 100 * number},1,{user},orders,produce,{size}\n"
    for number in range(600)
    for user, size in (("alice", 1000), ("bob", 3000))
)


def environment(home: Path) -> dict[str, str]:
    """A clean one, whose `kquota` is this one and whose `gh` writes down what it is asked."""
    (home / "bin").mkdir(exist_ok=True)
    programs = {
        "kquota": f'#!/bin/sh\nexec "{sys.executable}" -m kquota "$@"\n',
        "gh": '#!/bin/sh\necho "$@" >> gh.txt\ncat comment.md >> gh.txt\n',
        "curl": '#!/bin/sh\necho "$@" >> curl.txt\n',
    }
    for name, text in programs.items():
        (home / "bin" / name).write_text(text)
        (home / "bin" / name).chmod(0o755)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("KQUOTA_", "GIT_", "XDG_"))}
    author = {
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", "a"), ("EMAIL", "a@b"))
    }
    return {
        **clean,
        **author,
        "HOME": str(home),
        "PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "GITHUB_STEP_SUMMARY": str(home / "summary.md"),
    }


def git(repository: Path, *arguments: str) -> str:
    command = ["git", "-c", "init.defaultBranch=main", *arguments]
    done = subprocess.run(command, cwd=repository, env=environment(repository.parent), capture_output=True, check=True)
    return done.stdout.decode().strip()


def repository(folder: Path, base: str | None, changed: str) -> Path:
    """One with a branch that changes the file, which main has changed too since the branch left it."""
    path = folder / "repository"
    path.mkdir(parents=True)
    git(path, "init", "--quiet")
    (path / "README").write_text("quotas\n")
    if base is not None:
        (path / "quotas.yaml").write_text(base)
    git(path, "add", ".")
    git(path, "commit", "--quiet", "--message", "Base")
    git(path, "checkout", "--quiet", "-b", "change")
    (path / "quotas.yaml").write_text(changed)
    (path / "more").write_text("")
    git(path, "add", ".")
    git(path, "commit", "--quiet", "--message", "Change")
    git(path, "checkout", "--quiet", "main")
    (path / "quotas.yaml").write_text(BASE.replace("alice", "somebody"))
    git(path, "add", ".")
    git(path, "commit", "--quiet", "--message", "Another")
    git(path, "checkout", "--quiet", "change")
    (path / "usage.csv").write_text(USAGE)
    shutil.copy(ROOT / "docs" / "ci" / "review-quotas.sh", path)
    return path


def run(repository: Path, script: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Runs a script there as GitHub's runners do."""
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=repository,
        env={**environment(repository.parent), **settings},
        capture_output=True,
        text=True,
        check=False,
    )


REVIEW = "./review-quotas.sh quotas.yaml main usage.csv"


@pytest.mark.parametrize(
    ("base", "changed", "code", "plan", "audit"),
    [
        pytest.param(BASE, f"# a remark\n{BASE}", 0, None, None, id="no change"),
        pytest.param(BASE, HARMLESS, 0, (0, 1, 0), "no client newly throttled", id="harmless"),
        pytest.param(BASE, HARMFUL, 1, (0, 1, 0), "1 client newly throttled", id="harmful"),
        pytest.param(
            HARMFUL,
            WORSE.replace("50kB", "10kB"),
            1,
            (0, 2, 0),
            "1 client newly throttled, 1 client throttled more",
            id="worse and new",
        ),
        pytest.param(None, HARMFUL, 1, (2, 0, 0), "1 client newly throttled", id="new file"),
        pytest.param(
            HARMFUL,
            BASE.replace("  - {entity: {user: bob}, values: {producer_byte_rate: 50kB}}\n", ""),
            0,
            (0, 0, 1),
            "no client newly throttled, 1 client no longer throttled",
            id="deleted quota",
        ),
    ],
)
def test_the_review(
    tmp_path: Path, base: str | None, changed: str, code: int, plan: tuple[int, int, int] | None, audit: str | None
) -> None:
    """The comment, and the exit code that stops the merge."""
    path = repository(tmp_path, base, changed)

    done = run(path, REVIEW)

    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert "exit code 1, as --exit-code asks" not in done.stderr
    headings = ["Quota plan: nothing changes"]
    if plan is not None:
        created, updated, deleted = plan
        headings = [f"Quota plan: {created} entities to create, {updated} to update, {deleted} to delete"]
        headings.append(f"Quota audit: {audit}")
    comment = (path / "comment.md").read_text()
    assert re.findall(r"^### (.*?)(?:;.*)?$", comment, re.MULTILINE) == headings
    for worse in ("newly throttled", "throttled more"):
        assert (f"| {worse} |" in comment) == any(f"1 client {worse}" in heading for heading in headings)
    assert sorted(file.name for file in path.iterdir() if file.name.endswith(".yaml")) == ["quotas.yaml"]
    assert git(path, "status", "--porcelain", "--untracked-files=no") == ""


def test_what_apply_refuses_and_what_is_not_known(tmp_path: Path) -> None:
    """The comment says both; only the first stops the merge."""
    refused = repository(tmp_path / "refused", BASE, BASE.replace("user: bob", "user: User:bob"))
    unknown = repository(
        tmp_path / "unknown", BASE, BASE.replace("bob}, values: {", "bob}, values: {consumer_byte_rate: 1MB, ")
    )
    (unknown / "usage.csv").write_text(f"{USAGE}{START_MS},1,bob,orders,share_fetch,\n")

    assert [run(path, REVIEW).returncode for path in (refused, unknown)] == [1, 0]
    assert "* **`kquota apply` refuses this plan**: user-prefix" in (refused / "comment.md").read_text()
    assert "--fail-on undetermined counts these as well" in (unknown / "comment.md").read_text()


@pytest.mark.parametrize(
    ("changed", "script", "code", "says"),
    [
        (BASE.replace("20kB", "-1"), REVIEW, 3, "quotas.yaml, line 4: quotas[0]:"),
        (HARMFUL, REVIEW.replace("usage.csv", "none.csv"), 3, "none.csv: no such file"),
        (HARMFUL, REVIEW.replace("main", "nowhere"), 128, "nowhere"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, changed: str, script: str, code: int, says: str) -> None:
    """With another exit code than that of a harmful change, and in the comment, where kquota was asked at all."""
    path = repository(tmp_path, BASE, changed)
    done = run(path, script)

    assert done.returncode == code
    assert says in done.stderr
    comment = path / "comment.md"
    assert comment.exists() == (code == 3)
    if code == 3:
        assert re.search(rf"ended with exit code 3\n\n```text\n.*{re.escape(says)}", comment.read_text(), re.DOTALL)


@pytest.mark.parametrize(("changed", "code"), [(HARMLESS, 0), (HARMFUL, 1)])
def test_the_workflow(tmp_path: Path, changed: str, code: int) -> None:
    """Its own steps, with GitHub's variables filled in: the pull request gets the comment in any case."""
    path = repository(tmp_path, BASE, changed)
    workflow: Any = yaml.safe_load((ROOT / "docs" / "ci" / "github-actions.yaml").read_text())
    steps = {step.get("name"): step for step in workflow["jobs"]["review"]["steps"]}
    known = {
        "github.event.pull_request.base.sha": git(path, "rev-parse", "main"),
        "github.event.pull_request.number": "7",
        "github.token": "token",
    }
    # As the step before it would have left it.
    parquet.write_table(csv.read_csv(path / "usage.csv"), path / "usage.parquet")
    codes = []
    for name in ("Review", "Comment"):
        settings = {
            key: re.sub(r"\$\{\{ (.*?) \}\}", lambda found: known[found[1]], text)
            for key, text in steps[name]["env"].items()
        }
        codes.append(run(path, steps[name]["run"], **settings).returncode)

    assert codes == [code, 0]
    comment = (path / "comment.md").read_text()
    assert (tmp_path / "summary.md").read_text() == comment
    asked, said = (path / "gh.txt").read_text().split("\n", 1)
    assert asked == "pr comment 7 --edit-last --create-if-none --body-file comment.md"
    assert said == comment
    # YAML 1.1 takes `on` for true.
    assert workflow[True]["pull_request"]["paths"] == ["quotas.yaml"]
    assert workflow["permissions"]["pull-requests"] == "write"


def test_the_job_of_gitlab(tmp_path: Path) -> None:
    """Its own lines, with GitLab's variables filled in."""
    path = repository(tmp_path, BASE, HARMFUL)
    (job,) = yaml.safe_load((ROOT / "docs" / "ci" / "gitlab-ci.yaml").read_text()).values()
    parquet.write_table(csv.read_csv(path / "usage.csv"), path / "usage.parquet")
    known = {"CI_MERGE_REQUEST_DIFF_BASE_SHA": "main", "CI_PROJECT_ID": "3", "CI_MERGE_REQUEST_IID": "7"}
    known |= {"CI_API_V4_URL": "https://git.example.com/api/v4", "COMMENT_TOKEN": "token"}

    assert [run(path, "\n".join(job[part]), **known).returncode for part in ("script", "after_script")] == [1, 0]
    assert (
        "--data-urlencode body@comment.md https://git.example.com/api/v4/projects/3/merge_requests/7/notes"
        in (path / "curl.txt").read_text()
    )


def test_the_comment_of_the_documentation(tmp_path: Path) -> None:
    """It is what the recipe writes."""
    path = repository(tmp_path, BASE, HARMFUL)
    run(path, REVIEW)

    [shown] = [block.text for block in examples.blocks() if block.language == "markdown"]
    assert shown == (path / "comment.md").read_text()
