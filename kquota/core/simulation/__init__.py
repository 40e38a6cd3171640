"""What brokers would do to a workload: clients that send open or closed loop, under the quotas of a snapshot.

- `workload`: clients, brokers and changes as values; the plan of a client's arrivals.
- `engine`: finds who shares counters with whom, and runs each group by itself.
- `connections`: clients that open connections.
- `result`: what comes out.

The loop itself is `kquota.core.enforcement.traffic`, compiled or plain.
"""

from kquota.core.simulation.engine import expected_events as expected_events
from kquota.core.simulation.engine import simulate as simulate
from kquota.core.simulation.result import Acceptor as Acceptor
from kquota.core.simulation.result import ClientResult as ClientResult
from kquota.core.simulation.result import CounterResult as CounterResult
from kquota.core.simulation.result import Queue as Queue
from kquota.core.simulation.result import Share as Share
from kquota.core.simulation.result import Simulation as Simulation
from kquota.core.simulation.result import Timeline as Timeline
from kquota.core.simulation.result import widened as widened
from kquota.core.simulation.workload import Brokers as Brokers
from kquota.core.simulation.workload import Burst as Burst
from kquota.core.simulation.workload import Change as Change
from kquota.core.simulation.workload import Client as Client
from kquota.core.simulation.workload import Events as Events
from kquota.core.simulation.workload import Workload as Workload
from kquota.core.simulation.workload import enforced_workload as enforced_workload
