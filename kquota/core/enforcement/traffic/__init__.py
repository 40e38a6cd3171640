"""Clients that send, and what their broker makes of it: a discrete-event loop over connections, compiled or plain.

A connection has one event at a time: the moment (ms) at which the broker charges its next request. The loop takes the
earliest, charges the sensors of the connection in the order of `KafkaApis`, and computes when the next request of this
connection can be charged. In the open loop requests come as planned, whatever the broker says. In the closed loop a
connection is muted for the throttle time (KIP-219), has at most `in_flight` requests without a response, and takes its
arrivals as fast as it may: what cannot be sent yet waits.

Everything is rows, so that one call runs many events: a `Behaviour` is what connections of one kind have in common, a
`Connection` what each of them has, `Sensors` are the counters of a broker. Times are those of the broker's clock.
"""

# With any of these modules come all of them: a kernel is made of the functions that were marked until then.
from kquota.core.enforcement.traffic.loop import run_traffic as run_traffic
