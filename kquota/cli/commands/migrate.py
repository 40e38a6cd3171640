"""`kquota migrate`."""

from collections.abc import Iterator, Sequence

import click

from kquota.cli import params, session
from kquota.cli.contexts import Given
from kquota.cli.grammar import Group
from kquota.cli.options import choice, declared
from kquota.cli.streams import warn
from kquota.cli.text import Column, safe
from kquota.cli.views import Note, Part, View, shown_as, table_of
from kquota.core.change.migration import Finding, compare
from kquota.documents.clusters import commands, migration_document


@click.group("migrate", cls=Group)
def command() -> None:
    """Check what a migration to KRaft made of the quotas.

    \b
    Examples:
      kquota migrate check --zookeeper localhost:2181/kafka --bootstrap-server localhost:9092
    """


@command.command("check")
@declared
@shown_as("table", "json", "yaml")
def check(
    *,
    selection: params.Selection = params.ENTITIES,
    strict: bool = params.STRICT,
    fail_on: str | None = choice(["differences"], "Exit with 1 when anything was found."),
    given: Given = params.GIVEN,
) -> View:
    """Compare the quotas in ZooKeeper with the quotas of the migrated brokers.

    Needs both --zookeeper and --bootstrap-server, reads only, and takes ZooKeeper's side for what was meant. It names
    what the migrations before Kafka 3.6.2, 3.7.1 and 3.8.0 damaged: names that were not decoded (KAFKA-16222) and
    defaults under an empty name (KAFKA-16411); and what is missing, extra or different. With each comes the command
    that mends it. Quotas that were altered through brokers since the end of the migration differ as well, as they
    should.

    \b
    Examples:
      kquota migrate check --zookeeper localhost:2181/kafka --bootstrap-server localhost:9092
      kquota migrate check --user alice --no-strict --zookeeper zk:2181 --bootstrap-server broker:9092
      kquota migrate check --fail-on differences -o json --zookeeper zk:2181 --bootstrap-server broker:9092
    """
    wanted = selection.filter(strict=strict)
    access = given.both()
    zookeeper, bootstrap_server = access.zookeeper, access.bootstrap_server
    if not zookeeper or not bootstrap_server or access.bootstrap_controller:
        raise click.UsageError("two sides are compared: give --zookeeper HOST:PORT and --bootstrap-server HOST:PORT")
    source, brokers = session.open_migration(bootstrap_server, access)
    with source, brokers:
        kraft, nameless = brokers.migrated()
        snapshot = source.describe()
    for quotas in (snapshot, kraft):
        session.warn_problems(quotas.problems)
    if kraft and not snapshot:
        warn("ZooKeeper has no quota at all: is its chroot that of the brokers' zookeeper.connect?")
    findings = compare(snapshot, kraft, nameless, wanted)
    return View(
        screen=lambda: _screen(findings, bootstrap_server),
        document=lambda: migration_document(findings, zookeeper, bootstrap_server),
        asked=f"--fail-on {fail_on}" if findings and fail_on else "",
    )


def _screen(findings: Sequence[Finding], bootstrap_server: str) -> Iterator[Part]:
    """What is damaged, and below the table the commands that mend it, each on a line of its own to copy."""
    if not findings:
        yield Note("no differences")
        return
    yield table_of(
        [(finding, finding.damage) for finding in findings],
        [
            (Column("DAMAGE", style="yellow"), lambda row: (row[1].value, f"({row[1].cause})" if row[1].cause else "")),
            (Column("WHERE", style="cyan"), lambda row: row[0].where),
            (Column("PROOF"), lambda row: row[0].proof),
        ],
    )
    yield ""
    yield "To mend:"
    for finding in findings:
        remark = f" ({finding.note})" if finding.note else ""
        yield f"# {safe(finding.where)}: {finding.damage.value}{safe(remark)}"
        yield from map(safe, commands(finding, bootstrap_server))
