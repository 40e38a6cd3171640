"""`kquota diff`."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kquota.access import Access, load_config
from kquota.cli import params, session
from kquota.cli.commands.plan import Labels, Words, plan_view
from kquota.cli.exit_codes import ExitCode
from kquota.cli.views import View, shown_as
from kquota.errors import InputError

if TYPE_CHECKING:
    from kquota.cli.contexts import Given
    from kquota.core.change.diff import Side
    from kquota.core.quotas.selector import Selector
    from kquota.documents.quotas import QuotaFile

_WORDS = Words(
    "Quotas of A and B", "A", "B", ("only in B", "different", "only in A"), "no difference", "unmanaged not compared"
)
_LIVE, _CONTEXT, _FILE = "live", "context:", "file:"


@click.command("diff")
@click.argument("a")
@click.argument("b")
@click.option("--cluster", metavar="NAME", help="The cluster whose overlays of the files hold.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 when there is a difference.")
@params.given_cluster_options
@shown_as("table", "json", "markdown")
def command(a: str, b: str, cluster: str | None, exit_code: bool, given: Given) -> View:
    """Show what would turn A into B: live clusters, contexts, quotas files and plans.

    A and B are each 'live', 'context:NAME', a quotas file, or a plan that 'kquota plan --out' kept. 'live' is the
    cluster of the options or of the current context. 'context:NAME' is a cluster with a name ('kquota config
    set-context'). 'file:NAME' is a file, also one that is called 'live'.

    A plan stands for the quotas after it; only its own entities are compared. Between two plans, an entity that only
    one plan changes keeps its old values in the other. Entities that a file calls unmanaged are not compared. With A
    live, -o json prints a plan that 'kquota apply' takes.

    \b
    Examples:
      kquota diff live quotas.yaml
      kquota diff context:staging context:prod --exit-code
      kquota diff yesterday.yaml live -o markdown
      kquota diff live plan.json
      kquota diff quotas.yaml context:prod --cluster prod
    """
    from kquota.core.change.diff import difference

    operands = [_Operand.parse(text) for text in (a, b)]
    if _LIVE not in {operand.kind for operand in operands} and given.names_a_cluster:
        raise click.UsageError("a cluster is given, and neither A nor B is 'live'")
    # Files first: what is wrong with them shows before anything is connected to.
    files = _Files.read([Path(operand.name) for operand in operands if operand.kind == _FILE], cluster)
    one, other = (_side(operand, files, given, side) for operand, side in zip(operands, "AB", strict=True))
    found = difference(one, other, files.unmanaged)
    view = plan_view(found, files.labels, words=_WORDS)
    return replace(view, code=ExitCode.DIFFERENT if exit_code and found else ExitCode.OK)


@dataclass(frozen=True, slots=True)
class _Operand:
    """What A or B is: `live`, `context:` or `file:`, and its name."""

    kind: str
    name: str = ""

    @classmethod
    def parse(cls, text: str) -> _Operand:
        if text == _LIVE:
            return cls(_LIVE)
        for kind in (_CONTEXT, _FILE):
            if text.startswith(kind):
                if text == kind:
                    raise click.UsageError(f"{text!r} names nothing")
                return cls(kind, text.removeprefix(kind))
        return cls(_FILE, text)


@dataclass(frozen=True)
class _Files:
    """The files among the operands: quotas and plans by path, and what quotas files say beside the quotas."""

    sides: dict[Path, Side]
    unmanaged: tuple[Selector, ...]
    labels: Labels

    @classmethod
    def read(cls, paths: list[Path], cluster: str | None) -> _Files:
        """Reads them; the cluster is that of the files that have overlays for any, of which there must be one."""
        from kquota.documents.plan import is_plan, read_plan
        from kquota.documents.quotas import read_quota_file

        sides: dict[Path, Side] = {}
        files: list[QuotaFile] = []
        for path in dict.fromkeys(paths):
            try:
                planned = is_plan(path)
            except InputError as error:
                raise InputError(error.message, hint=error.hint or _hint(path)) from None
            if planned:
                sides[path] = read_plan(path)
                continue
            file = read_quota_file(path)
            if cluster is not None and file.clusters:
                file = read_quota_file(path, cluster)
            session.warn_problems(file)
            files.append(file)
            sides[path] = file.snapshot
        if cluster is not None and not any(file.clusters for file in files):
            raise InputError(f"--cluster {cluster}: neither A nor B is a file with clusters")
        unmanaged = tuple(selector for file in files for selector in file.unmanaged)
        return cls(sides, unmanaged, {entity: labels for file in files for entity, labels in file.labels.items()})


def _hint(path: Path) -> str | None:
    """That a context is called so, where one is and no file; what else could stand there, where there is no file."""
    name = str(path)
    if name in load_config().contexts:
        return f"the context of that name is context:{name}"
    if path.exists():
        return None
    address = "://" in name or re.search(r":\d+\Z", name)
    named = "; give a cluster a name with 'kquota config set-context NAME'" if address else ""
    return f"a file, context:NAME, or live: the cluster of the options{named}"


def _side(operand: _Operand, files: _Files, given: Given, side: str) -> Side:
    if operand.kind == _FILE:
        return files.sides[Path(operand.name)]
    if operand.kind == _CONTEXT:
        access = Access.of_context(load_config().context(operand.name), given.timeout_s)
        if access.zookeeper and access.bootstrap_server:
            raise InputError(
                f"context {operand.name!r} has two addresses", hint=f"'live' with --context {operand.name} takes one"
            )
        if access.bootstrap_controller:
            raise InputError(f"context {operand.name!r} has controllers only, which do not show quotas")
    else:
        access = given.access()
    session.note_cluster(access, side)
    with session.open_backend(access) as backend:
        snapshot = backend.describe()
    session.warn_problems(snapshot)
    return snapshot
