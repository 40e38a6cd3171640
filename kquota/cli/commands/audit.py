"""`kquota audit`."""

import click

from kquota.cli import audited, auditing, usage
from kquota.cli.views import View, shown_as


@click.command("audit", cls=audited.Command)
@usage.asked_of_all
@audited.options
@shown_as("table", "wide", "json", "csv", "markdown", takes_output=True)
def command(asked: usage.Asked, wanted: audited.Wanted, output: str) -> View:
    """Show who would be throttled, when, by which quota and by how much.

    Replays recorded usage (Kafka's request log, or a usage table) under the given quotas, by the broker's own rules.
    Every quota holds per broker, and so do the times in the table. 'kquota help columns' explains the columns. Files
    may be named by URIs (s3://logs/broker-1/). The quotas may also be a history: a file of periods ('kquota schema
    quota-history'), or by --quotas-journal.

    Without quotas it shows whom the brokers throttled by what the recording itself says: client, share, longest, when.
    By which quota is not known then. What judges quotas, such as --fail-on, asks for them.

    Each quota that is set ends in one verdict: throttled, not throttled, undetermined with the reason, or nobody seen.
    Nobody seen means that the usage would show the clients of the quota, and there are none. Some quotas need more
    columns of a usage table, such as connections, partitions and acks ('kquota schema usage'). Of connections a request
    log shows a lower bound.

    Samples of monitoring (Prometheus, kafka-jmx, …) do not hold each request. Where they decide it, a counter is
    throttled or not throttled. Otherwise it is undetermined, between the bounds in the table.

    With --against the same usage is replayed under both quotas, and the table shows the clients for whom something
    changes. Clients are compared one by one, because a quota on another level gives a client another counter.

    A damaged file does not end the audit: the file is named, its readable part counts, and the exit code is 9.

    Clients that were held back while the usage was recorded may want more than they got. Under a higher limit they are
    undetermined, with the least rate that they wanted. The throttle times in the usage show the clients that were held
    back. Where the usage has none, --recorded-under names the quotas that were in force.

    The simulator predicts how long clients wait. It runs the recorded clients as producers that queue, as clients that
    wait for their answers, or as consumers that catch up. With --closed-loop the most probable prediction stands beside
    the replay of the same requests at the same times.

    \b
    Examples:
      kquota audit kafka-request.log
      kquota audit kafka-request.log --quotas quotas.yaml
      kquota audit logs/broker-1/ logs/broker-2/ --zookeeper localhost:2181 --out findings/
      kquota audit kafka-request.log --quotas quotas.yaml --report report.html
      kquota audit usage.parquet --quotas proposed.yaml --fail-on throttled
      kquota audit usage.parquet --quotas proposed.yaml --against live --bootstrap-server host:9092
      kquota audit usage.parquet --quotas proposed.yaml --against current.yaml -o markdown
      kquota audit usage.parquet --quotas new.yaml --against old.yaml --fail-on newly-throttled --fail-on throttled-more
      kquota audit kafka-request.log --quotas proposed.yaml --closed-loop
      kquota audit usage.parquet --quotas history.yaml
      kquota audit usage.parquet --bootstrap-server host:9092 --quotas-journal ~/.local/state/kquota/journal
      kquota audit --topic usage --bootstrap-server host:9092
      kquota audit --prometheus http://prometheus:9090 --last 6h --bootstrap-server host:9092 --in-force
      spark-submit $(python -m kquota.cli.submit) usage.parquet --quotas proposed.yaml
    """
    settings = audited.settings_for(asked, wanted, output)
    if settings.read.by_client:
        return audited.without_quotas(asked, wanted, settings)
    with auditing.auditor(asked.usage, settings, "--closed-loop" if wanted.closed_loop else None) as run:
        return audited.answered(asked, wanted, settings, run, output)
