"""`kquota import`."""

import importlib
from collections.abc import Mapping
from pathlib import Path

import click

from kquota.cli import grammar, params, session
from kquota.cli.exit_codes import ExitCode
from kquota.cli.options import argument, choice, path
from kquota.cli.streams import wrote
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.documents.encoding import read_raw_text, write_text
from kquota.documents.foreign import csv, refuse_others, tool_of
from kquota.documents.quotas import quotas_text
from kquota.errors import InputError

FORMATS = ("kafka-configs", "rpk", "jikkou", "strimzi", "terraform", "csv")


@grammar.command("import")
def command(
    *,
    file: Path = argument(type=click.Path(path_type=Path, allow_dash=True)),
    format_: str | None = choice(FORMATS, "Whose format the file has, where it does not show.", "--from"),
    columns: Mapping[str, str] = params.COLUMNS,
    out: Path | None = path("Write a file instead of stdout."),
) -> int:
    """Read another tool's quotas, and write them as a quotas file.

    Most files show whose they are. Of kafka-configs, read is what it printed with --describe (of any release), or a
    shell script of --alter commands; of rpk, what 'rpk cluster quotas describe --format json|yaml' printed; of
    Jikkou and Strimzi, their resources; of Terraform, kafka_quota of the provider Mongey/kafka; csv is the table that
    'kquota describe -o csv' writes, or a row for each client with a column for each quota, as Excel and LibreOffice
    save them. FILE - is stdin. Credentials are no quotas and left out; what cannot be read as a quota is named on
    stderr, and the exit code is 9. A file in which nothing is understood is an error.

    \b
    Examples:
      kafka-configs.sh … --describe --entity-type users | kquota import -
      kquota import --from kafka-configs quotas.sh > quotas.yaml
      kquota import --from rpk rpk.json --out quotas.yaml
      kquota import tenants.csv --ignore-column Department > quotas.yaml
    """
    snapshot = read(file, format_, columns)
    session.warn_problems(snapshot.problems)
    text = quotas_text(snapshot)
    if out is None:
        click.echo(text, nl=False)
    else:
        write_text(out, text)
        wrote(out, f"'kquota plan {out}' compares it with a cluster")
    return ExitCode.PARTIAL if snapshot.problems else ExitCode.OK


def read(file: Path, format_: str | None, meant: Mapping[str, str]) -> QuotaSnapshot:
    """The quotas of a file in another tool's format; of a table, with headings as they are `meant`.

    Raises InputError naming the file and the line, also where nothing is understood: no quotas is an answer, too.
    """
    text = read_raw_text(file).removeprefix("\ufeff")
    name = "standard input" if str(file) == "-" else str(file)
    if not text.strip():
        raise InputError(f"{name}: it is empty", hint="the command that writes it may have failed")
    format_ = format_ or _format_of(name, text)
    try:
        if format_ == "csv":
            quotas, lines = csv.read(name, text, meant)
            session.note_empty_rows(name, quotas, lines)
            return QuotaSnapshot(quotas)
        module = importlib.import_module(f"kquota.documents.foreign.{format_.replace('-', '_')}")
        snapshot: QuotaSnapshot = module.read(name, text)
    except InputError:
        refuse_others(name, text, format_)
        raise
    return snapshot


def _format_of(name: str, text: str) -> str:
    """The format that a text shows. Raises InputError where it shows none that is read."""
    if csv.is_table(name, text):
        return "csv"
    _, dialect = tool_of(text) or ("", None)
    if dialect is None:
        refuse_others(name, text)
        raise InputError(f"{name}: whose format is it?", hint=f"--from {', '.join(FORMATS)}")
    return dialect
