"""`kquota export`."""

import importlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from kquota.cli import grammar, params, session
from kquota.cli.exit_codes import ExitCode
from kquota.cli.leases import ends_of, few
from kquota.cli.options import choice, path
from kquota.cli.streams import note, warn, wrote
from kquota.cli.text import safe
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.selector import NamePatterns
from kquota.core.quotas.snapshot import Problem, QuotaSnapshot
from kquota.documents.encoding import write_text
from kquota.documents.foreign import Exported
from kquota.documents.quotas import quotas_text, writable
from kquota.documents.update import updated

FORMATS = ("kquota", "kafka-configs", "rpk", "jikkou", "strimzi", "terraform")


@grammar.command("export")
def command(
    *,
    selection: params.Selection = params.ENTITIES,
    strict: bool = params.STRICT,
    match: NamePatterns = params.MATCH,
    format_: str = choice(
        FORMATS,
        "Whose format; JSON of the quotas is 'kquota describe -o json'.",
        "--format",
        "-o",
        "--output",
        default=FORMATS[0],
    ),
    out: Path | None = path("Write a file instead of stdout."),
    update: Path | None = path("Bring a quotas file to what the cluster has."),
    source: session.QuotaSource = params.SOURCE,
) -> int:
    """Write a cluster's quotas as a file, also as another tool's.

    A 'kquota plan' of the exported file changes nothing. --update edits a file in place: unchanged values keep their
    text, comments, variables and overlays stay, and new entities come at the end. Unmanaged entities are left alone.
    Quotas that a format cannot express are named on stderr, and the exit code is 9. Values that end ('kquota help
    temporary') have a warning on stderr, and a comment in the quotas file.

    \b
    Examples:
      kquota export --bootstrap-server localhost:9092 > quotas.yaml
      kquota export --update quotas.yaml
      kquota export --match 'team-a-*' > team-a.yaml
      kquota export --format kafka-configs > quotas.sh
      kquota export --quotas quotas.yaml --format terraform > quotas.tf
    """
    wanted = selection.filter(strict=strict)
    if update is not None and out is not None:
        raise click.UsageError("--out writes a new file and --update edits one: give one of them")
    if update is not None and format_ != FORMATS[0]:
        raise click.UsageError("only a quotas file of kquota can be updated")
    session.warn_misnomers(wanted.components)
    everything, all_leases = session.load_quotas_and_leases(source, wanted)

    def asked(entity: Entity) -> bool:
        return wanted.matches(entity) and match.matches(entity)

    snapshot = QuotaSnapshot({entity: values for entity, values in everything.items() if asked(entity)})
    leases = [lease for lease in all_leases if lease.entity in snapshot]
    for line in few(f"a value for a while: {text}" for text in ends_of(leases)):
        warn(line)
    if match and not snapshot:
        note(safe(f"no entity with quotas has a name like {match}"))
    if update is not None:
        change = updated(update, snapshot, asked)
        if change:
            # The file itself, where the path is a link to it.
            write_text(update.resolve(), change.text)
        counts = {"added": change.added, "changed": change.changed, "removed": change.removed}
        text = ", ".join(f"{len(entities)} {what}" for what, entities in counts.items())
        note(f"{update}: {text if change else 'nothing changes'}")
        return _name_unsaid(change.unsaid)
    exported = export(snapshot, format_)
    if format_ == FORMATS[0]:
        # Whoever keeps the file learns that it would make these values permanent.
        comments = "".join(f"# For a while: {text}\n" for text in ends_of(leases))
        exported = replace(exported, text=comments + exported.text)
    if out is None:
        click.echo(exported.text, nl=False)
    else:
        write_text(out, exported.text)
        wrote(out, f"'kquota plan {out}' compares it with a cluster" if format_ == FORMATS[0] else "")
    return _name_unsaid(exported.unsaid)


def export(snapshot: QuotaSnapshot, format_: str) -> Exported:
    """The quotas as a text in one of the formats."""
    if format_ != "kquota":
        module = importlib.import_module(f"kquota.documents.foreign.{format_.replace('-', '_')}")
        exported: Exported = module.export(snapshot)
        return exported
    quotas, unsaid = writable(snapshot)
    return Exported(quotas_text(quotas), unsaid)


def _name_unsaid(problems: Sequence[Problem]) -> int:
    for problem in problems:
        warn(f"left out: {problem.where}: {problem.message}")
    return ExitCode.PARTIAL if problems else ExitCode.OK
