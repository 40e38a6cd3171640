"""What brokers would do to a workload: clients that send open or closed loop, under the quotas of a snapshot.

The loop itself is `kquota.core.enforcement.traffic`, compiled or plain.
"""
