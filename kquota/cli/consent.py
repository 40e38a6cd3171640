"""Between a plan and its first write: which cluster it is, what speaks against it, and whether somebody says yes."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

import click

from kquota.cli.params import Writing
from kquota.cli.streams import ask, note, on_terminal, once, quiet, say, warn
from kquota.cli.text import safe
from kquota.core.change.plan import Objection, Severity
from kquota.core.change.review import CHANGED_SHARE, DELETED_SHARE, FELT, UNSEEN, standing
from kquota.documents.journal import Entry
from kquota.errors import Refused

_MOST_OF_A_KIND = 5
"""More lines of a kind would bury the other kinds."""


def announce(objections: Iterable[Objection]) -> None:
    """Says what speaks against a plan, a line each on stderr; of many of a kind the first ones.

    What lint warns of is advice, which `--quiet` does without.
    """
    shown = [
        objection
        for objection in objections
        if not quiet() or objection.severity > Severity.WARNING or objection.name in (*FELT, UNSEEN.name)
    ]
    for _, kind in groupby(shown, key=lambda objection: objection.name):
        group = list(kind)
        for objection in group[:_MOST_OF_A_KIND]:
            warn(objection.message)
        if len(group) > _MOST_OF_A_KIND:
            warn(f"and {len(group) - _MOST_OF_A_KIND} more of this kind")


def foretell(objections: Iterable[Objection]) -> None:
    """Says of a plan what apply will ask about or refuse, and what clients feel; other warnings are lint's to say."""
    words = {
        Severity.REFUSAL: "apply will refuse this: ",
        Severity.QUESTION: "apply will ask about this: ",
        Severity.WARNING: "",
    }
    chosen = [objection for objection in objections if objection.severity > Severity.WARNING or objection.name in FELT]
    lifts = {DELETED_SHARE.name: " (--max-deleted allows more)", CHANGED_SHARE.name: " (--max-changed allows more)"}
    announce(
        replace(objection, message=f"{words[objection.severity]}{objection.message}{lifts.get(objection.name, '')}")
        for objection in chosen
    )


def refuse(objections: Sequence[Objection], given: Writing) -> None:
    """Raises Refused for a refusal that is not lifted."""
    refusals = standing(objections, yes=True, force=given.force)
    if refusals:
        raise _refused(refusals)


def heed(objections: Sequence[Objection], given: Writing, question: str = "", done: str = "written") -> None:
    """Says what speaks against a plan, and stops it where nothing lifts that.

    Raises Refused for a refusal that is not lifted. A question that is not answered is asked on a terminal; with no
    `question` it is left to the caller to ask.
    """
    refuse(objections, given)
    questions = _standing(objections, given) if question else ()
    if questions and not on_terminal():
        raise _refused(questions)
    announce(objections)
    if questions:
        ask(question, done=done, yes="does it")


def will_ask(objections: Sequence[Objection], given: Writing) -> bool:
    """Whether `heed` is about to ask somebody, and not to refuse."""
    refused = standing(objections, yes=True, force=given.force)
    return on_terminal() and not refused and bool(_standing(objections, given))


def _standing(objections: Sequence[Objection], given: Writing) -> Sequence[Objection]:
    return standing(objections, yes=given.yes, force=given.force)


def rehearse(objections: Sequence[Objection], given: Writing) -> None:
    """Says of a dry run what speaks against it, and what the run itself would ask. Raises Refused for a refusal."""
    refuse(objections, given)
    asked = _standing(objections, given)
    asks = "; the run asks about this, and a script needs --yes"
    announce(
        replace(objection, message=f"{objection.message}{asks} [{objection.name}]") if objection in asked else objection
        for objection in objections
    )


def _refused(objections: Sequence[Objection]) -> Refused:
    """The first objection, how many more there are, and what lifts each kind; not every command has every option."""
    alike = " like it" if all(objection.name == objections[0].name for objection in objections) else ""
    others = f" (and {len(objections) - 1} more{alike})" if len(objections) > 1 else ""
    context = click.get_current_context(silent=True)
    has = None if context is None else {name for param in context.command.params for name in param.opts}

    kinds: dict[str, list[str]] = {}
    for name, by in {objection.name: objection.lifted_by for objection in objections}.items():
        options = " or ".join(option for option in by if has is None or option in has)
        kinds.setdefault(f"use {options} if you mean it " if options else "", []).append(name)
    hint = "; ".join(f"{use}[{', '.join(names)}]" for use, names in kinds.items())
    return Refused(f"refused: {safe(objections[0].message)}{others}", hint=hint)


def name_cluster(named: str) -> None:
    """Says once which cluster is about to be written to."""
    once(f"cluster: {named}", note)


@contextlib.contextmanager
def says_what_may_be_written() -> Iterator[Callable[[Entry], None]]:
    """Whatever ends a run that has begun to write, or to record, its user learns of the way back.

    What this gives is called with each entry of the journal that is begun.
    """
    begun: list[Entry] = []
    try:
        yield begun.append
    except BaseException:
        for entry in begun:
            what, back = f"some of {len(entry.plan.changes)} changes may be written", "takes them back"
            if entry.levels:
                what, back = "request loggers may be on", "switches them back"
            say(f"kquota: {what}: 'kquota undo {entry.name}' {back}")
        raise
