"""Who would be throttled, when, by which quota and by how much: recorded usage under quotas.

The package is a function. All its arguments: `from kquota.audit.run import audit; help(audit)`.

    kquota.audit(usage, quotas, *, against=None, kafka_version="4.0", in_force=False, …) -> AuditResult

`usage` is a path, several, or a `Usage` of `kquota.audit.run`, which also names tables, topics, a Prometheus
and the engine. `quotas` is a mapping, a snapshot, or a file. The result has `findings`, a pyarrow Table with a row for
each counter: times in ms, rates in the unit of the key per second and broker. It has `quotas`, a verdict for each quota
that is set, and `rejects`, the records that could not be read. Raises InputError for a wrong input, and
MissingDependency without the libraries of the audit.

    result = kquota.audit("kafka-request.log", {"user=alice": {"producer_byte_rate": "10MB"}})
    print(result.throttled, result.findings.to_pandas())

docs/architecture.md follows a log line through the rooms.
"""

from kquota.callables import make_callable

make_callable(__name__)
