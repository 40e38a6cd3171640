"""`kquota reconcile`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kquota.cli import params, session
from kquota.cli.exit_codes import SIGNALS, ExitCode, exit_code_of
from kquota.cli.streams import note, say
from kquota.cli.text import moment

if TYPE_CHECKING:
    from kquota.access import Access


@click.command("reconcile")
@params.journal_option
@params.cluster_options
def command(journal: Path, access: Access) -> int:
    """Revert writes with --for when their time is over, and recordings that were killed.

    Run it from cron or a systemd timer, once for each cluster, by any address of the cluster. A change stays when
    somebody else changed the entity since: reconcile reports it at each run, and reverts the others. A killed
    'kquota record' has its request loggers switched back: at once on the host of the recording, and elsewhere when its
    time is over.

    \b
    Examples:
      kquota reconcile --bootstrap-server localhost:9092
      */5 * * * *  kquota reconcile --context prod
    """
    from kquota.changes import now, place_of
    from kquota.cli.commands.undo import switch_back, take_back, warn_unreadable
    from kquota.documents.journal import Journal
    from kquota.errors import KquotaError, Unauthorized, Unreachable
    from kquota.recorder import is_due

    named = session.label(access)
    book = Journal(journal)
    pages, time = book.read(), now()
    warn_unreadable(pages)
    due = [entry for entry in pages.entries if is_due(entry, book, time) and pages.can_be_undone(entry)]
    # What cannot be read may be over as well.
    worst: int = ExitCode.INPUT if pages.unreadable else ExitCode.OK
    if not due:
        if sys.stderr.isatty():  # cron would send a mail at each run
            later = [each.expires for each in pages.entries if each.expires is not None and pages.can_be_undone(each)]
            note(f"nothing is due: the next one is at {moment(min(later))} UTC" if later else "nothing is due")
        return worst
    with session.open_backend(access) as backend:
        here = place_of(backend)
        for entry in reversed(due):
            if not entry.is_of(here):
                continue
            try:
                if entry.levels:
                    code = switch_back(
                        entry, access, named=named, journal=journal, yes=True, output="table", command="reconcile"
                    )
                else:
                    code = take_back(
                        entry, backend, named=named, journal=journal, yes=True, output="table", command="reconcile"
                    )
            except (Unreachable, Unauthorized):
                raise  # the other entries would meet the same
            except KquotaError as error:
                say(f"kquota: {entry.id}: {error.message}")
                code = exit_code_of(error)
            worst = max(worst, code)
            if code in SIGNALS:
                return code
    return worst
