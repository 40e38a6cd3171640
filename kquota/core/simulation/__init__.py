"""What brokers would do to a workload: clients that send open or closed loop, under the quotas of a snapshot.

- `workload`: clients, brokers and changes as values; the plan of a client's arrivals.
- `engine`: finds who shares counters with whom, and runs each group by itself.
- `connections`: clients that open connections.
- `result`: what comes out.

The loop itself is `kquota.core.enforcement.traffic`, compiled or plain.
"""
