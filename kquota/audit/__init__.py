"""The audit: usage exports → resolve → order per counter → enforcement → findings. The only room that knows Spark.

sources/    one module per export dialect: splits of files → batches of usage events, or samples
ledger/     batch → ledger (charge) → findings (replay)
judge.py    samples → findings: what follows from them, by bounds.py; accounts.py brings them together
stages.py   the two halves of an audit: what is charged, and what is found
local.py    an engine for the tasks: processes on this machine
spark.py    another: a Spark job; package.py ships this package to its executors
findings.py what comes out; timeline.py and demand.py look at the events on the way
whatif.py   two findings compared; recommend.py the quotas that would be enough
stream/     an audit of usage that is still being written, by the same two sides.
run.py      an audit from its input to its findings, for the library and the commands

The package is a function as well: `kquota.audit(...)` is `kquota.audit.run.audit`.
"""

from kquota.callables import make_callable

make_callable(__name__)
