"""`kquota reconcile`."""

from collections.abc import Sequence
from dataclasses import replace

from kquota import reconcile
from kquota.backends import QuotaBackend, describe_entities
from kquota.changes import place_of, with_freezes
from kquota.cli import grammar, params, session
from kquota.cli.exit_codes import SIGNALS, ExitCode, exit_code_of
from kquota.cli.leases import known_leases, shown
from kquota.cli.leases import named as name_of
from kquota.cli.streams import note, say, warn
from kquota.cli.text import many, moment, safe
from kquota.cli.views import DRY_RUN
from kquota.cli.writing import Terms, carry_out, switch_back, terms_of
from kquota.core.change.plan import Cluster
from kquota.documents.journal import Entry, Journal
from kquota.errors import KquotaError, Unauthorized, Unreachable
from kquota.leases import Lease, Leases, by_place, ending, read_leases
from kquota.reconcile import now
from kquota.state import usual_beside


@grammar.command("reconcile")
def command(
    *,
    writing: params.Writing = params.writing(
        yes=None, force=None, dry_run=params.DRY_UNDO, wait=None, lasts_ms=None, message=None, output=None
    ),
) -> int:
    """Revert writes with --for when their time is over.

    Run it from cron or a systemd timer, once for each cluster, by any address of the cluster. It reads the journal that
    the writes were made with. Another user has another journal, unless --journal or KQUOTA_JOURNAL name the same one.
    With --quiet, it says nothing as long as nothing is due ('kquota help temporary').

    A value stays when somebody else changed it since. Reconcile reports that once, with exit code 7, and ends the
    lease; it reverts the other values. A killed 'kquota record' has its request loggers switched back: at once on the
    host of the recording, and elsewhere when its time is over.

    \b
    Examples:
      kquota reconcile --bootstrap-server localhost:9092
      */5 * * * *  kquota reconcile --quiet --context prod
    """
    from kquota.recorder import is_due

    terms = terms_of(replace(writing, yes=True, output="table"), "reconcile")
    book, stop, dry_run = terms.journal, terms.stop, writing.dry_run
    pages, time = book.read(), now()
    session.warn_unreadable(pages)
    recordings = [entry for entry in pages.entries if entry.levels and pages.can_be_undone(entry)]
    over = [entry for entry in recordings if is_due(entry, book, time)]
    leased = [leases for _, leases in by_place(pages.entries)]
    if usual := usual_beside(book.folder):  # which cron lines of before mean, and the drop-in writes to
        beside = known_leases(Journal(usual), lambda: Cluster(terms.cluster)).on
        if beside:
            by = warn if any(lease.is_overdue(time) for lease in beside) else note
            command = f"'kquota reconcile{params.there(writing.access, usual)}'"
            by(f"the journal {usual} has {many(len(beside), 'lease')} of this cluster, which {command} ends")
    # What cannot be read may be over as well.
    worst: int = ExitCode.INPUT if pages.unreadable else ExitCode.OK
    if not over and not any(leases.overdue(time) for leases in leased):
        on = [lease for leases in leased for lease in leases.on]
        ends = [entry.expires for entry in recordings if entry.expires is not None]
        count = len(on) + len(ends)
        # No lease at all, a later end, or maybe another journal.
        what = "no lease"
        if ends := [*ends, *(lease.ends for lease in on if not lease.covered)]:
            what = f"{many(count, 'lease')}, next at {moment(min(ends))} UTC"
        note(f"nothing is due; {what} (journal {safe(book.folder)})")
        return worst
    with session.open_backend(writing.access) as backend:
        here = place_of(backend)
        any_due = False
        for entry in reversed([entry for entry in over if entry.is_of(here)]):
            any_due = True
            try:
                code = switch_back(entry, terms)
            except KquotaError as error:
                code = _complained(entry, error)
            worst = max(worst, code)
        tried: set[str] = set()
        assumed: list[Entry] | None = [] if dry_run else None
        # After each one the journal is read again: what lay below a lease that has ended can end now.
        while True:
            leases = read_leases(book, here, assumed or ())
            due = next((group for id, group in leases.due(time).items() if id not in tried), None)
            if due is None:
                break
            if stop():
                say("stopped: what else is due is left to the next 'kquota reconcile'")
                return stop.exit_code
            any_due = True
            entry = due[0].entry
            tried.add(entry.id)
            try:
                code = _end(due, leases, backend, terms, assumed)
            except KquotaError as error:
                code = _complained(entry, error)
            worst = max(worst, code)
            if code in SIGNALS:
                return code
    if any_due and dry_run:
        say(DRY_RUN)
    if not any_due:
        others = f"other clusters of the journal {safe(book.folder)} have overdue leases"
        note(f"nothing is due at {safe(terms.named)}; {others}")
    return worst


def _complained(entry: Entry, error: KquotaError) -> int:
    """Names the entry that could not be taken back. Raises what the other entries would meet as well."""
    if isinstance(error, Unreachable | Unauthorized):
        raise error
    say(f"kquota: {entry.id}: {error.message}")
    return exit_code_of(error)


def _end(due: Sequence[Lease], leases: Leases, backend: QuotaBackend, terms: Terms, assumed: list[Entry] | None) -> int:
    """Takes back the leases of one entry that are due; returns the exit code.

    A value that somebody else has changed stays. That is said once: the journal closes such a lease. In a dry run,
    `assumed` are the entries that the run would have written until now, and nothing is written.
    """
    entry, journal = due[0].entry, terms.journal
    left = [lease for lease in leases.of_entry(entry) if lease.is_on and lease not in due]
    current = describe_entities(backend, list(dict.fromkeys(lease.entity for lease in due)))
    for earlier in assumed or ():
        current = earlier.plan.applied_to(current)
    end = ending(due, current, is_whole=not left)
    terms = replace(
        terms,
        journal=replace(journal, message=entry.message),
        cluster=entry.cluster,
        undoes=entry.id,
        kept=end.kept,
        part=end.part,
    )
    if assumed is not None:
        assumed.append(end.assumed(entry))
    if end.plan:
        code = carry_out(with_freezes(end.plan, backend), backend, terms, {})
        if code != ExitCode.OK:
            return code
    else:
        if assumed is None:
            reconcile.apply(end.plan, backend, terms)
        if not end.conflicts:
            note(f"entry {entry.name}: the values before are back already")
    pages = journal.read() if end.conflicts else None
    for lease, value in end.conflicts:
        setter = None if pages is None else pages.setter(lease.entity, lease.key, value, entry)
        who = "somebody else" if setter is None else f"entry {setter.name}"
        where = "outside this journal" if setter is None else "and was stopped before its end"
        say(
            f"kquota: entry {entry.name}: {name_of(lease)} is {shown(lease.key, value)} and not"
            f" {shown(lease.key, lease.value)}: {who} set it, {where}; it stays, and the lease"
            f" {'would be' if assumed is not None else 'is'} over"
        )
    return ExitCode.CONFLICT if end.conflicts else ExitCode.OK
