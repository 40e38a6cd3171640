"""`kquota follow`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kquota.cli import audited, auditing, following, usage
from kquota.cli.views import View, shown_as

if TYPE_CHECKING:
    from kquota.audit.result import AuditResult
    from kquota.audit.settings import AuditSettings


@click.command("follow", cls=audited.Command)
@usage.asked_of_all
@audited.options
@following.options
@shown_as("table", "wide", "json", "csv", "markdown", takes_output=True)
def command(
    asked: usage.Asked,
    wanted: audited.Wanted,
    follow: following.Following,
    output: str,
) -> View:
    """Follow a log or a topic: when throttling begins and ends.

    Files are read as they grow, are rotated and come anew. A line is printed when a counter begins to throttle its
    clients, and when it ended: the peak, the loudest clients, and the limit that would have been enough. Topic changes
    and connections of a request log are judged at the end only.

    Ctrl-C or SIGTERM ends it. At the end it shows what 'kquota audit' finds in the same files. For them the
    requests are kept on the disk, up to --keep. With --until-idle nothing but the findings is printed. With
    --checkpoint the same command goes on where it stopped, or was killed. The quotas of a live cluster are followed
    too: a change counts from the moment on when it is seen. 'kquota audit --help' explains the findings.

    \b
    Examples:
      kquota follow logs/broker-1/ --quotas quotas.yaml --checkpoint kept/
      kquota follow kafka-request.log --quotas quotas.yaml --until-idle 5s -o json
      kquota follow logs/ --bootstrap-server host:9092 --checkpoint kept/ --episodes http://alertmanager:9093
      kquota follow --topic usage --bootstrap-server host:9092 --episodes episodes.jsonl
    """
    settings = audited.settings_for(asked, wanted, output, "kquota follow")
    follow.check(asked.usage)
    lines = follow.until_idle is None
    show = {"json": following.show_json, "table": following.show_text, "wide": following.show_text}.get(output)
    live = _live(asked, settings, wanted.against)
    followed, seen = following.follow(asked.usage, settings, follow, show if lines else None, live)

    def run(its: AuditSettings) -> AuditResult:
        """Other settings than those that were followed are audited on the files that are there in the end."""
        if its == seen:
            return followed
        with auditing.auditor(asked.usage, its) as batch:
            return batch(its)

    return audited.answered(asked, wanted, seen, run, output, in_a_line=lines)


def _live(asked: usage.Asked, settings: AuditSettings, against: str | None) -> following.LiveQuotas | None:
    """The quotas whose changes count while files are followed: those of a cluster, unless a journal leads to them."""
    variant = 1 if against == "live" else 0
    access = asked.named.live.access if variant else asked.named.access
    if access is None or asked.quotas_journal is not None:
        return None
    known = asked.facts.settings()
    return following.LiveQuotas(variant, access, lambda snapshot: asked.facts.enforced(snapshot, known))
