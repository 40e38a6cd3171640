"""Who would be throttled, when, by which quota and by how much: recorded usage under quotas.

The package is a function, `kquota.audit.run.audit`; `help(kquota.audit.run.audit)` has all arguments:

    kquota.audit(usage, quotas, *, against=None, kafka_version="4.0", in_force=False, …) -> AuditResult

`usage` is a path, several, or a `Usage`. `quotas` is a mapping, a snapshot, or a file. The result has `findings`, a
pyarrow Table with a row for each counter: times in ms, rates in the unit of the key per second and broker. It has
`quotas`, a verdict for each quota that is set, and `rejects`, the records that could not be read. Raises InputError for
a wrong input, and MissingDependency without the libraries of the audit.

    result = kquota.audit("kafka-request.log", {"user=alice": {"producer_byte_rate": "10MB"}})
    print(result.throttled, result.findings.to_pandas())

The rooms, in the order in which a log line passes them. Imports go from the later ones to the earlier ones.

sources/     files → batches of requests (audit/batch.py), or samples: one module for each dialect.
ledger/      batches → a row for each counter that pays for a request, sorted → the enforcement kernel → findings.
evidence/    what the recording shows of counters and clients: predictions, bounds, and the verdict.
engines/     which process runs what: on this machine, or on Spark.
follow/      the same of usage that is still being written.
answers/     questions to findings: what other quotas change, and which quotas would be enough.

settings.py is what is asked. findings.py has the columns of a finding, and result.py all that is found. run.py leads
from the input to the findings.
"""

from kquota.callables import make_callable

make_callable(__name__)
