"""What brokers do with a quota: the statistics, the checks and the delays, to the rounding of a half millisecond.

`broker` says what happens to one request, `replay` and `traffic` do so many times, and `kernel` runs that compiled or
plain, with identical results. `sensors` are the same as objects, with limits that change.

Importing this package loads neither numpy nor numba.
"""

from kquota.core.enforcement.broker import UNLIMITED as UNLIMITED
from kquota.core.enforcement.broker import Verdict as Verdict
from kquota.core.enforcement.generation import Generation as Generation
from kquota.core.enforcement.generation import QuotaWindows as QuotaWindows
from kquota.core.enforcement.kernel import Kernel as Kernel
from kquota.core.enforcement.kernel import Mode as Mode
from kquota.core.enforcement.kernel import kernel as kernel
from kquota.core.enforcement.kind import Kind as Kind
from kquota.core.enforcement.sensors import UNLIMITED_IP as UNLIMITED_IP
from kquota.core.enforcement.sensors import Acceptors as Acceptors
from kquota.core.enforcement.sensors import ConnectionManager as ConnectionManager
from kquota.core.enforcement.sensors import MutationSensor as MutationSensor
