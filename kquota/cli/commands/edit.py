"""`kquota edit`."""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click

from kquota.backends import cluster_of
from kquota.changes import placed
from kquota.cli import grammar, params, session
from kquota.cli.exit_codes import ExitCode
from kquota.cli.streams import note, say, warn
from kquota.cli.text import safe
from kquota.cli.writing import carry_out, terms_of
from kquota.core.change.plan import plan_of_edit
from kquota.core.change.review import with_review
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.selector import NamePatterns
from kquota.documents.quotas import QuotaFile, quotas_text, read_quota_file, writable
from kquota.errors import InputError, Refused

_MOST_TRIES = 10
"""An editor that is a program would make the same mistake for ever."""
_MARK = "# kquota: "
"""Begins the lines that explain a mistake."""


@grammar.command("edit")
def command(
    *,
    selection: params.Selection = params.ENTITIES,
    strict: bool = params.STRICT,
    match: NamePatterns = params.MATCH,
    writing: params.Writing = params.writing(dry_run=None, wait=None, lasts_ms=None),
) -> int:
    """Edit a cluster's quotas, review the plan, and apply it.

    The editor is $VISUAL, else $EDITOR such as 'code --wait', else vim, nano or vi. It opens a quotas file. Entity
    options and --match limit the entities in it. An entry or a value that is deleted there is deleted from the cluster.
    Nothing else changes. The rest is as with 'kquota apply': the plan, its review, a question, the journal, and
    'kquota undo'.

    A file that is empty or unchanged does nothing. After a mistake the editor opens again, with the mistake in a
    comment at the top. Whenever an edit was not applied, its file is kept and named.

    \b
    Examples:
      kquota edit --bootstrap-server localhost:9092
      kquota edit --match 'team-a-*'
      kquota edit --user alice --no-strict
      kquota edit --context prod --force
    """
    filters = selection.filters(strict=strict)
    terms = terms_of(writing)

    def is_asked(entity: Entity) -> bool:
        return match.matches(entity) and any(wanted.matches(entity) for wanted in filters)

    with session.open_backend(writing.access) as backend:
        current = backend.describe()
        session.warn_problems(current.problems)
        shown, unsaid = writable(current.part(is_asked))
        for problem in unsaid:
            warn(f"left out of the file, and left as it is: {problem.where}: {problem.message}")
        folder = Path(tempfile.mkdtemp(prefix="kquota-edit-"))
        path = folder / "quotas.yaml"
        keep = False
        try:
            lines = quotas_text(shown).splitlines(keepends=True)
            text = _head(terms.named) + "".join(line for line in lines if not line.startswith("#"))
            path.write_text(text, encoding="utf-8")
            keep = True
            file = _edited(path, text, is_asked)
            if file is None:
                keep = False
                return ExitCode.OK
            made = plan_of_edit(current, shown, file.desired, file.unmanaged)
            made = replace(made, cluster=cluster_of(backend), existing=len(current))
            code = carry_out(placed(with_review(made, current, file.guards), backend), backend, terms, file.labels)
            keep = code not in (ExitCode.OK, ExitCode.OUTPUT)
            return code
        finally:
            if keep:
                say(f"kquota: the edit is kept in {path}")
            else:
                shutil.rmtree(folder, ignore_errors=True)


def _edited(path: Path, text: str, is_asked: Callable[[Entity], bool]) -> QuotaFile | None:
    """The file as it was edited, once it has no mistakes; None where there is nothing to do, which is said.

    Raises InputError for a file that keeps its mistakes, Refused for an editor that fails.
    """

    def read() -> QuotaFile:
        file = read_quota_file(path)
        # What others have on the cluster was not shown.
        if others := [entity for entity in file.desired if not is_asked(entity)]:
            raise InputError(
                f"{others[0]} is not among the entities that were asked for",
                hint="leave it out, or run 'kquota edit' with other options",
            )
        return file

    before = text
    for _ in range(_MOST_TRIES):
        _run_editor(path)
        try:
            edited = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path} cannot be read after the edit: {type(error).__name__}") from None
        if not _content(edited):
            note("the file is empty: nothing was done")
            return None
        if _content(edited) == _content(text):
            note("the file is unchanged: nothing was done")
            return None
        try:
            file = read()
        except InputError as error:
            if _content(edited) == _content(before) and before is not text:
                raise  # whoever edits has given up
            mistake, before = error, _explained(edited, error)
            path.write_text(before, encoding="utf-8")
            try:
                read()  # the comments moved the lines that the mistake names
            except InputError as moved:
                before = _explained(before, moved)
                path.write_text(before, encoding="utf-8")
        else:
            return file
    raise mistake


def _run_editor(path: Path) -> None:
    """Opens the editor and waits for its end. Raises Refused where that fails."""
    try:
        click.edit(filename=str(path))
    except (click.ClickException, ValueError) as error:  # ValueError: a quotation mark in EDITOR is open
        raise Refused(f"nothing was written: {error}", hint="set VISUAL or EDITOR, as in EDITOR=nano") from None


def _content(text: str) -> str:
    """The lines without comments of a line, and without blanks at the end."""
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))


def _head(named: str) -> str:
    return (
        f"# Quotas of {' '.join(named.split())}\n"
        "# A deleted entry or value is deleted from the cluster. An empty or unchanged file does nothing.\n"
    )


def _explained(text: str, error: InputError) -> str:
    """The file with its mistakes in comments at the top, in the place of those of the try before."""
    lines = [error.whole, *error.others]
    comments = [f"{_MARK}{safe(' '.join(line.split()))}\n" for line in lines]
    rest = [line for line in text.splitlines(keepends=True) if not line.startswith(_MARK)]
    return "".join((*comments, *rest))
