"""`kquota reconcile`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kquota.cli import params, session
from kquota.cli.exit_codes import SIGNALS, ExitCode, exit_code_of
from kquota.cli.streams import say

if TYPE_CHECKING:
    from kquota.access import Access


@click.command("reconcile")
@params.journal_option
@params.cluster_options
def command(journal: Path, access: Access) -> int:
    """Revert 'kquota apply --for' when its time is over.

    For cron or a systemd timer, once for each cluster, by any of its addresses. What cannot be taken back, because
    somebody else changed the entity since, is said each time, and holds up nothing else.

    \b
    Examples:
      kquota reconcile --bootstrap-server localhost:9092
      */5 * * * *  kquota reconcile --context prod
    """
    from kquota.changes import now, place_of
    from kquota.cli import consent
    from kquota.cli.commands.undo import take_back, warn_unreadable
    from kquota.documents.journal import Journal
    from kquota.errors import KquotaError, Unauthorized, Unreachable

    named = consent.label(access)
    pages, time = Journal(journal).read(), now()
    warn_unreadable(pages)
    due = [
        entry
        for entry in pages.entries
        if entry.expires is not None and entry.expires <= time and pages.can_be_undone(entry)
    ]
    # What cannot be read may be over as well.
    worst: int = ExitCode.INPUT if pages.unreadable else ExitCode.OK
    if not due:
        return worst
    with session.open_backend(access) as backend:
        here = place_of(backend)
        for entry in reversed(due):
            if not entry.is_of(here):
                continue
            try:
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
