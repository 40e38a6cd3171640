"""`kquota apply`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from kquota.backends import cluster_of
from kquota.backends.addresses import option_of
from kquota.changes import check_cluster, placed, unwritten
from kquota.cli import grammar, params, session
from kquota.cli.options import argument, flag, option
from kquota.cli.streams import say
from kquota.cli.views import DRY_RUN
from kquota.cli.writing import carry_out, terms_of
from kquota.core.change.plan import Plan, plan
from kquota.core.change.review import Guards, with_review
from kquota.documents.plan import is_plan, read_plan
from kquota.documents.quotas import QuotaFile
from kquota.errors import Unreachable
from kquota.leases import Lease, Leases


class _Percent(click.IntRange):
    """A whole number of percent, as `5` or `5%`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        value = str(value).removesuffix("%")
        return super().convert(value, param, ctx)


def _percent(about: str, most: int) -> Any:
    return option(about, type=_Percent(0, 100), default=most, metavar="PERCENT")


@grammar.command("apply")
def command(
    *,
    file: Path = argument(type=click.Path(path_type=Path)),
    prune: bool = params.PRUNE,
    cluster: str | None = params.CLUSTER,
    columns: Mapping[str, str] = params.COLUMNS,
    max_deleted: int = _percent("Refuse to delete more of the cluster's entities, where it has ten or more.", 20),
    max_changed: int = _percent(
        "Refuse to change or delete more of the cluster's entities, where it has ten or more.", 50
    ),
    no_rollback: bool = flag("When something fails, leave what was done."),
    writing: params.Writing = params.writing(wait=None),
) -> int:
    """Apply a quotas file, or a plan that 'plan --out' kept.

    Shows the plan and its review ('kquota help review'), and asks. A saved plan is refused on another cluster, and when
    the cluster changed since the plan was made. All changes are validated before the first is written. When a change
    fails nevertheless, the changes before it are rolled back. The journal keeps the way back: 'kquota undo'.

    \b
    Examples:
      kquota apply quotas.yaml --bootstrap-server localhost:9092
      kquota apply plan.json --dry-run
      kquota apply plan.json --yes
      kquota apply quotas.yaml --prune --max-deleted 5
      kquota apply backfill.yaml --for 2h
    """
    quota_file: QuotaFile | None = None
    planned: Plan | None = None
    access = writing.access
    if is_plan(file):
        if prune or cluster is not None:
            raise click.UsageError("--prune and --cluster were decided when the plan was made")
        planned = read_plan(file)
        planned = replace(planned, message=writing.message or planned.message)
        if access.address is None and planned.cluster is not None:
            raise click.UsageError(
                f"no cluster: the plan is for {planned.cluster.address}: give {option_of(planned.cluster.address)}"
            )
    else:
        quota_file = session.load_quota_file(file, cluster, columns)
    terms = terms_of(writing, file=file, why=None if planned is None else planned.message)
    with session.open_backend(access) as backend:
        try:
            current = backend.describe()
        except Unreachable as error:
            raise unwritten(error) from None
        session.warn_problems(current.problems)
        guards = Guards()
        if quota_file is not None:
            planned = plan(current, quota_file.desired, prune=prune, unmanaged=quota_file.unmanaged)
            planned = replace(planned, cluster=cluster_of(backend))
            guards = quota_file.guards
        guards = replace(guards, most_deleted=max_deleted / 100, most_changed=max_changed / 100)
        assert planned is not None
        check_cluster(planned, backend)
        session.note_new_names(current, [change.entity for change in planned.changes if not change.before])

        def keeps(leases: Leases) -> Sequence[Lease]:
            if quota_file is None:
                return ()
            return leases.kept_by_quotas(quota_file.desired, current, prune=prune, unmanaged=quota_file.unmanaged)

        code = carry_out(
            placed(with_review(replace(planned, existing=len(current)), current, guards), backend),
            backend,
            replace(terms, rollback=not no_rollback),
            quota_file.labels if quota_file is not None else {},
            keeps,
            {change.entity for change in planned.changes if change.is_made(current.get(change.entity, {}))},
        )
    if writing.dry_run:
        say(DRY_RUN)
    return code
