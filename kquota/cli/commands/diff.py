"""`kquota diff`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import click

from kquota.access import Access, load_config
from kquota.backends import cluster_of
from kquota.backends.addresses import scheme_of, unknown
from kquota.cli import grammar, params, session
from kquota.cli.contexts import Given
from kquota.cli.leases import ends_of, few, leases_of
from kquota.cli.options import argument, flag, value
from kquota.cli.plans import Labels, plan_view
from kquota.cli.streams import note
from kquota.cli.views import View, shown_as
from kquota.core.change.plan import Cluster, Plan, Side, difference
from kquota.core.quotas.selector import Selector
from kquota.documents.plan import is_plan, read_plan
from kquota.documents.quotas import QuotaFile, read_quota_file
from kquota.errors import InputError
from kquota.leases import Lease

_LIVE, _CONTEXT, _FILE = "live", "context:", "file:"
_SCHEMES = {"kafka": "bootstrap_server", "zookeeper": "zookeeper"}
"""Addresses as kquota prints them, with the parameter of the option that takes the rest."""


@grammar.command("diff")
@shown_as("table", "json", "markdown")
def command(
    *,
    a: str = argument(),
    b: str | None = argument(required=False, metavar="B"),
    cluster: str | None = value("NAME", "The cluster whose overlays of the files hold."),
    exit_code: bool = flag("Exit with 1 when there is a difference."),
    given: Given = params.GIVEN,
) -> View:
    """Show what would turn A into B: clusters, files or plans.

    A and B are each 'live', a context, an address, a quotas file, or a plan that 'kquota plan --out' kept. 'live' is
    the cluster of the options or of the current context. A file comes before a context of the same name:
    'context:NAME' is the context, and 'file:NAME' is a file, also one that is called 'live'. An address is
    zookeeper://HOST:PORT/CHROOT or kafka://HOST:PORT. Options such as --command-config log in to it as to 'live'.

    A plan stands for the quotas after it; only its own entities are compared. Between two plans, an entity that only
    one plan changes keeps its old values in the other. Entities that a file calls unmanaged are not compared.

    Where A is a cluster, -o json prints a plan for it. 'kquota apply' takes the plan, and refuses it on another
    cluster. The plan deletes what B does not have, as 'kquota plan --prune' does. Each change holds all
    keys of its entity, before and after.

    \b
    Examples:
      kquota diff live quotas.yaml
      kquota diff zookeeper://zk1:2181/kafka kafka://broker1:9092
      kquota diff staging prod --exit-code
      kquota diff yesterday.yaml live -o markdown
      kquota diff live plan.json
      kquota diff quotas.yaml context:prod --cluster prod
    """
    if b is None:
        example = f"kquota diff {shlex.quote(a)} live"
        raise click.UsageError(f"Missing argument 'B': what to compare with. For the cluster itself: {example}")
    operands = [_Operand.parse(text) for text in (a, b)]
    if _LIVE not in {operand.kind for operand in operands} and given.names_a_cluster:
        raise click.UsageError("a cluster is given, and neither A nor B is 'live'")
    # Files first: what is wrong with them shows before anything is connected to.
    files = _Files.read([Path(operand.name) for operand in operands if operand.kind == _FILE], cluster)
    one, other = (operand.read(files, given, side) for operand, side in zip(operands, "AB", strict=True))
    # What turns A into B is for A's cluster alone, wherever it is applied from.
    plan = replace(difference(one.quotas, other.quotas, files.unmanaged), cluster=one.cluster)
    differing = {(change.entity, key) for change in plan.changes for key in change.keys}
    for side, read in zip("AB", (one, other), strict=True):
        ends = ends_of([lease for lease in read.leases if (lease.entity, lease.key) in differing])
        for line in few(f"{side}: {line}" for line in ends):
            note(line)
    view = plan_view(plan, files.labels, sides=(a, b))
    return replace(view, asked="--exit-code" if exit_code and plan else "")


class _Read(NamedTuple):
    """What A or B stands for: quotas or a plan, its cluster, and those of its values that have an end."""

    quotas: Side
    cluster: Cluster | None = None
    leases: Sequence[Lease] = ()


@dataclass(frozen=True, slots=True)
class _Operand:
    """What A or B is: `live`, `context:` or `file:`, or the parameter that takes the address; and its name."""

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
        for scheme, parameter in _SCHEMES.items():
            if text.startswith(f"{scheme}://"):
                return cls(parameter, text.removeprefix(f"{scheme}://"))
        # A pipe is a file too. `exists` is false for what cannot be a path, where pathlib raises for long ones.
        if os.path.exists(text) and not os.path.isdir(text):
            return cls(_FILE, text)
        if scheme := scheme_of(text):
            raise unknown(scheme, *_SCHEMES)
        return cls(_CONTEXT if text in load_config().contexts else _FILE, text)

    def read(self, files: _Files, given: Given, side: str) -> _Read:
        """What A or B stands for. The cluster is known where it matters: of A."""
        if self.kind == _FILE:
            read = files.sides[Path(self.name)]
            return _Read(read, read.cluster if isinstance(read, Plan) else None)
        access = self._access(given)
        session.note_cluster(access, side)
        with session.open_backend(access) as backend:
            snapshot = backend.describe()
            cluster = cluster_of(backend) if side == "A" else None
            leases = leases_of(backend).shown_in(snapshot)
        session.warn_problems(snapshot.problems)
        return _Read(snapshot, cluster, leases)

    def _access(self, given: Given) -> Access:
        if self.kind == _LIVE:
            return given.access(alone=False)
        if self.kind != _CONTEXT:
            return given.at(self.kind, self.name).access(alone=False)
        access = Access.of_context(load_config().context(self.name), given.timeout_s)
        if access.zookeeper and access.bootstrap_server:
            raise InputError(
                f"context {self.name!r} has two addresses", hint=f"'live' with --context {self.name} takes one"
            )
        if access.bootstrap_controller:
            raise InputError(f"context {self.name!r} has controllers only, which do not show quotas")
        return access


@dataclass(frozen=True)
class _Files:
    """The files among the operands: quotas and plans by path, and what quotas files say beside the quotas."""

    sides: dict[Path, Side]
    unmanaged: tuple[Selector, ...]
    labels: Labels

    @classmethod
    def read(cls, paths: list[Path], cluster: str | None) -> _Files:
        """Reads them; the cluster is that of the files that have overlays for any, of which there must be one."""
        sides: dict[Path, Side] = {}
        files: list[QuotaFile] = []
        for path in dict.fromkeys(paths):
            try:
                planned = is_plan(path)
                file = None if planned else read_quota_file(path)
            except InputError as error:
                raise InputError(error.message, hint=error.hint or _hint(path)) from None
            if file is None:
                sides[path] = read_plan(path)
                continue
            if cluster is not None and file.clusters:
                file = read_quota_file(path, cluster)
            files.append(file)
            sides[path] = file.snapshot
        if cluster is not None and not any(file.clusters for file in files):
            raise InputError(f"--cluster {cluster}: neither A nor B is a file with clusters")
        unmanaged = tuple(selector for file in files for selector in file.unmanaged)
        return cls(sides, unmanaged, {entity: labels for file in files for entity, labels in file.labels.items()})


def _hint(path: Path) -> str | None:
    """What else could stand there, or be meant."""
    if not os.path.exists(path):
        return "a file, a context, kafka://HOST:PORT, zookeeper://HOST:PORT, or live: the cluster of the options"
    return f"that is the file; for the context: context:{path}" if str(path) in load_config().contexts else None
