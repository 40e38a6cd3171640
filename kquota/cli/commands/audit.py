"""`kquota audit`."""

from kquota.cli import audited, auditing, grammar, usage
from kquota.cli.views import View, shown_as


@grammar.command("audit")
@shown_as("table", "wide", "json", "csv", "markdown", takes_output=True)
def command(*, asked: usage.Asked = usage.ASKED, wanted: audited.Wanted = audited.WANTED, output: str) -> View:
    """Show who would be throttled, when, by which quota, how much.

    Replays recorded usage (Kafka's request log, a usage table, or samples of monitoring) under the given quotas, by the
    broker's own rules. Each quota ends in one verdict: throttled, not throttled, undetermined with the reason, or
    nobody seen ('kquota help verdicts'). Every quota holds per broker ('kquota help columns').

    Files may be named by URIs (s3://logs/broker-1/). The quotas may also be a history: a file of periods ('kquota
    schema quota-history'), or by --quotas-journal. Without quotas it shows whom the brokers throttled. With --against
    it shows the clients for whom something changes.

    A damaged file does not end the audit: the file is named, its readable part counts, and the exit code is 9.

    \b
    Examples:
      kquota audit kafka-request.log
      kquota audit kafka-request.log --quotas quotas.yaml
      kquota audit logs/broker-1/ logs/broker-2/ --zookeeper localhost:2181 --out findings/
      kquota audit kafka-request.log --quotas quotas.yaml --report report.html
      kquota audit usage.parquet --quotas new.yaml --against old.yaml --fail-on newly-throttled --fail-on throttled-more
      kquota audit usage.parquet --quotas proposed.yaml --against live --bootstrap-server host:9092 -o markdown
      kquota audit usage.parquet --bootstrap-server host:9092 --quotas-journal ~/.local/state/kquota/journal
      kquota audit --topic usage --bootstrap-server host:9092
      kquota audit --prometheus http://prometheus:9090 --last 6h --bootstrap-server host:9092 --in-force
      spark-submit $(python -m kquota.cli.submit) usage.parquet --quotas proposed.yaml
    """
    settings = audited.settings_for(asked, wanted, output)
    if settings.read.by_client:
        return audited.without_quotas(asked, wanted, settings)
    with auditing.auditor(asked.usage, settings) as run:
        return audited.answered(asked, wanted, settings, run, output)
