"""What brokers do with a quota: the statistics, the checks and the delays, to the rounding of a half millisecond.

- `arithmetic`: Java's number conversions.
- `generation`: the ways of dropping samples and of cutting delays, by release, and `quota.window.*`.
- `kind`: the kinds of counters and requests.
- `counter`: the state of a counter, a row of a table.
- `rate`: the windowed rate.
- `token_bucket`: the statistic of the controller mutation quota.
- `broker`: what a broker does to one request, whatever its kind: expire, record, check, delay, take back.
- `replay`: recorded usage of many counters in one pass.
- `traffic`: clients that send, open and closed loop, as an event loop over rows.
- `compilable`: the mark of what `kernel` compiles.
- `kernel`: runs all of the above compiled or plain, with identical results.
- `sensors`, `connection`: the same as objects, with limits that change, and the acceptor threads.

Importing this package loads neither numpy nor numba.
"""

from kquota.core.enforcement.broker import UNLIMITED as UNLIMITED
from kquota.core.enforcement.broker import Verdict as Verdict
from kquota.core.enforcement.connection import UNLIMITED_IP as UNLIMITED_IP
from kquota.core.enforcement.connection import Acceptors as Acceptors
from kquota.core.enforcement.connection import ConnectionManager as ConnectionManager
from kquota.core.enforcement.generation import Generation as Generation
from kquota.core.enforcement.generation import QuotaWindows as QuotaWindows
from kquota.core.enforcement.kernel import Kernel as Kernel
from kquota.core.enforcement.kernel import Mode as Mode
from kquota.core.enforcement.kernel import kernel as kernel
from kquota.core.enforcement.kind import Kind as Kind
from kquota.core.enforcement.sensors import MutationSensor as MutationSensor
