"""`kquota apply`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from kquota.access import Access
from kquota.backends import cluster_of
from kquota.changes import check_cluster, placed, unwritten
from kquota.cli import grammar, params, session
from kquota.cli.options import collected
from kquota.cli.streams import say
from kquota.cli.views import DRY_RUN, shown_as
from kquota.cli.writing import carry_out, terms_of
from kquota.core.change.plan import Cluster, Plan, plan
from kquota.core.change.review import Guards, with_review
from kquota.documents.plan import is_plan, read_plan
from kquota.documents.quotas import QuotaFile
from kquota.errors import Unreachable
from kquota.leases import Lease, Leases


@click.command("apply", cls=grammar.Command)
@click.argument("file", type=click.Path(path_type=Path))
@params.quota_file_options
@params.yes_option
@click.option(
    "--max-deleted",
    type=click.IntRange(0, 100),
    default=20,
    show_default=True,
    metavar="PERCENT",
    help="Refuse to delete more of the cluster's entities, where it has ten or more.",
)
@click.option(
    "--max-changed",
    type=click.IntRange(0, 100),
    default=50,
    show_default=True,
    metavar="PERCENT",
    help="Refuse to change or delete more of the cluster's entities, where it has ten or more.",
)
@click.option("--force", is_flag=True, help="Apply in spite of the review: 'kquota help review' lists what it lifts.")
@params.dry_run_option
@params.lease_option
@params.message_option
@click.option("--no-rollback", is_flag=True, help="When something fails, leave what was done.")
@params.journal_option
@params.cluster_options
@shown_as("table", "json", takes_output=True)
@collected("writing", params.Writing, ("yes", "force", "dry_run", "lasts_ms", "journal", "output"))
def command(
    file: Path,
    prune: bool,
    cluster: str | None,
    max_deleted: int,
    max_changed: int,
    no_rollback: bool,
    access: Access,
    writing: params.Writing,
) -> int:
    """Apply a quotas file, or a plan that 'kquota plan --out' kept.

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
    if is_plan(file):
        if prune or cluster is not None:
            raise click.UsageError("--prune and --cluster were decided when the plan was made")
        planned = read_plan(file)
        if access.address is None and planned.cluster is not None:
            raise click.UsageError(
                f"no cluster: the plan is for {planned.cluster.address}: give {_option_of(planned.cluster)}"
            )
    else:
        quota_file = session.load_quota_file(file, cluster)
    terms = terms_of(writing, access, file=file, why=None if planned is None else planned.message)
    with session.open_backend(access) as backend:
        try:
            current = backend.describe()
        except Unreachable as error:
            raise unwritten(error) from None
        session.warn_problems(current)
        guards = Guards(max_deleted / 100, max_changed / 100)
        if quota_file is not None:
            planned = plan(current, quota_file.desired, prune=prune, unmanaged=quota_file.unmanaged)
            planned = replace(planned, cluster=cluster_of(backend))
            guards = quota_file.guards(max_deleted / 100, max_changed / 100)
        assert planned is not None
        check_cluster(planned, backend)

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
        )
    if terms.dry_run:
        say(DRY_RUN)
    return code


def _option_of(cluster: Cluster) -> str:
    """The option that names the cluster of a plan."""
    scheme, _, servers = cluster.address.partition("://")
    option = {"zookeeper": "--zookeeper", "controller": "--bootstrap-controller"}.get(scheme, "--bootstrap-server")
    return f"{option} {servers}"
