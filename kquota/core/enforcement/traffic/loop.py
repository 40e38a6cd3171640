"""The loop: the earliest event of all connections, its response, and the next request of the connection."""

from kquota.core.enforcement.compilable import compilable, inlined
from kquota.core.enforcement.kind import FETCH, MUTATION
from kquota.core.enforcement.traffic.arrivals import collect, load_of, merge_waiting, random_gap, take, units_of
from kquota.core.enforcement.traffic.charging import charge
from kquota.core.enforcement.traffic.columns import BEGIN, DONE, Connections, Traffic
from kquota.core.enforcement.traffic.counters import count_throttle


@inlined
def answer(traffic: Traffic, connection: int, now: int, delay: int) -> None:
    """The response is sent: at once, whatever the delay; the channel is muted and the client told (KIP-219)."""
    behaviours, connections = traffic.behaviours, traffic.connections
    row = connections.behaviour[connection]
    if delay > 0:
        count_throttle(connections, connection, now, delay)
    connections.muted[connection] = now + delay
    received = now + behaviours.to_client[row]
    end = received
    if behaviours.honours[row] != 0:
        # A consumer that is busy reads the response, and begins to wait, at its next poll.
        end = max(received, connections.busy[connection]) + delay
    connections.received[connection][connections.sent[connection] % behaviours.in_flight[row]] = received
    connections.ends[connection][connections.sent[connection] % behaviours.in_flight[row]] = end
    connections.sent[connection] += 1
    connections.last_received[connection] = received


@inlined
def give_up(traffic: Traffic, connection: int, now: int) -> None:
    """Ends the retries of rejected topics when the time of their call is over (`KafkaAdminClient`)."""
    behaviours, connections = traffic.behaviours, traffic.connections
    row = connections.behaviour[connection]
    if now - connections.began[connection] > behaviours.timeout[row]:
        connections.rejected_units[connection] += connections.pending[connection] * behaviours.size[row]
        connections.pending[connection] = 0


@inlined
def sent_at(traffic: Traffic, connection: int, at: int) -> int:
    """When a client sends the next request, which is ready `at` a time; what it receives later, it does not know.

    It needs one of its `in_flight` places, and sends nothing during a throttle time that it knows (`NetworkClient`).
    Between the end of one and the response to the request that waited for it, all that is ready goes out.
    """
    connections = traffic.connections
    most = traffic.behaviours.in_flight[connections.behaviour[connection]]
    sent = connections.sent[connection]
    for response in range(max(sent - most, 0), sent):
        received = connections.received[connection][response % most]
        if response == sent - most:
            at = max(at, received)
        if received <= at:
            at = max(at, connections.ends[connection][response % most])
    return at


@inlined
def send_given(traffic: Traffic, connection: int, now: int, free: int) -> None:
    """Decides when the next recorded request is charged, which its client may send from `free` on.

    A client that waits for its answers thinks meanwhile: the broker answers at once, and then mutes (KIP-219). It stops
    when it stopped in the recording. Other requests queue from the time of their arrival.
    """
    behaviours, connections = traffic.behaviours, traffic.connections
    row = connections.behaviour[connection]
    following = connections.given_next[connection]
    waits = following < connections.given_end[connection] and traffic.given.thinks[following] >= 0
    if waits and connections.sent[connection] > 0:
        think = traffic.given.thinks[following]
        sent = sent_at(traffic, connection, max(free, connections.last_received[connection] + think))
        if sent > behaviours.stop[row]:
            connections.given_next[connection] = connections.given_end[connection]
            connections.arrived[connection] = DONE
            connections.due[connection] = DONE
            return
        take(traffic, connection)
        connections.arrived[connection] = sent
    else:
        arrived = take(traffic, connection)
        connections.arrived[connection] = arrived
        if arrived == DONE:
            connections.due[connection] = DONE
            return
        sent = sent_at(traffic, connection, max(free, arrived))
    read = max(sent + behaviours.to_broker[row], now, connections.muted[connection])
    connections.due[connection] = read + behaviours.latency_ms[row]
    if behaviours.merge[row] > 0:
        following = connections.given_next[connection]
        if following < connections.given_end[connection] and traffic.given.times[following] <= read:
            merge_waiting(traffic, connection, sent, connections.due[connection])
    waited = connections.due[connection] - connections.arrived[connection]
    if waited > connections.waited[connection]:
        connections.waited[connection] = waited


@inlined
def await_processing(traffic: Traffic, connection: int) -> None:
    """A consumer that thinks processes one response and has one in store (`Fetcher`): it asks when the store is empty.

    What it gets while it is idle goes to processing at once, and the next request out with it.
    """
    connections = traffic.connections
    think = traffic.given.thinks[connections.given_next[connection] - 1]
    if think < 0 or connections.arrived[connection] == DONE:
        return
    if connections.pending[connection] > 0:
        connections.arrived[connection] = DONE - 1
        return
    begun = max(connections.delivered_ms[connection], connections.busy[connection])
    connections.arrived[connection] = begun
    connections.busy[connection] = begun + think


@inlined
def send(traffic: Traffic, connection: int, now: int) -> None:
    """Decides when the next request of the connection is charged; `now` is the time of the last response."""
    behaviours, connections = traffic.behaviours, traffic.connections
    row = connections.behaviour[connection]
    if behaviours.closed[row] == 0:
        connections.due[connection] = take(traffic, connection)
        return
    sent = behaviours.start[row]
    if behaviours.think_ms[row] > 0 and connections.sent[connection] > 0:
        sent = max(sent, connections.last_received[connection] + behaviours.think_ms[row])
    sent = sent_at(traffic, connection, sent)
    if behaviours.kind[row] >= MUTATION and connections.pending[connection] > 0:
        give_up(traffic, connection, sent)
    polls = behaviours.kind[row] == FETCH
    given = connections.given_end[connection] > 0
    if polls and given:
        if connections.pending[connection] == 0 and connections.arrived[connection] == DONE:
            connections.due[connection] = DONE
            return
        await_processing(traffic, connection)
    elif given:
        send_given(traffic, connection, now, sent)
        return
    elif polls or behaviours.saturates[row] != 0:
        if sent >= behaviours.stop[row] and (polls or connections.pending[connection] == 0):
            connections.due[connection] = DONE
            return
    elif connections.pending[connection] == 0:  # no rejected topics that go first
        arrived = take(traffic, connection)
        connections.arrived[connection] = arrived
        if arrived == DONE:
            connections.due[connection] = DONE
            return
        sent = sent_at(traffic, connection, max(sent, arrived))
    if behaviours.kind[row] >= MUTATION and connections.pending[connection] == 0:
        connections.began[connection] = sent
    # The broker reads the next request of a connection when the response to the last is sent and the mute is over.
    read = max(sent + behaviours.to_broker[row], now, connections.muted[connection])
    if polls and behaviours.saturates[row] == 0:
        collect(traffic, connection, read)
        if connections.pending[connection] == 0:
            read = min(connections.arrived[connection], read + behaviours.max_wait_ms[row])
    connections.due[connection] = read + behaviours.latency_ms[row]


@compilable
def before(connections: Connections, one: int, other: int) -> bool:
    """Whether one connection's event is before another's."""
    if connections.due[one] != connections.due[other]:
        return connections.due[one] < connections.due[other]
    return connections.tie[one] < connections.tie[other]


@compilable
def sift(connections: Connections, position: int) -> None:
    """Puts the connection at a position of the heap where it belongs, further down."""
    heap = connections.heap
    count = len(heap)
    moving = heap[position]
    while True:
        child = 2 * position + 1
        if child >= count:
            break
        if child + 1 < count and before(connections, heap[child + 1], heap[child]):
            child += 1
        if not before(connections, heap[child], moving):
            break
        heap[position] = heap[child]
        position = child
    heap[position] = moving


@compilable
def run_traffic(traffic: Traffic, until: int) -> int:
    """Runs all events before `until`; returns how many there were. It can be called again, with a later time.

    The first run has BEGIN as its end, and plans the first request of every connection. A function of its own would
    have `send` compiled twice, which takes a sixth of all compiling.
    """
    connections = traffic.connections
    events = 0
    while until != BEGIN or events < len(connections.heap):
        if until == BEGIN:
            connection, now = events, traffic.sensors.origin
            row = connections.behaviour[connection]
            if connections.random[connection] != 0:
                connections.target[connection] = connections.step[connection] * random_gap(connections, connection)
            polls = traffic.behaviours.kind[row] == FETCH and traffic.behaviours.closed[row] != 0
            if polls and traffic.behaviours.saturates[row] == 0:
                connections.arrived[connection] = take(traffic, connection)
        else:
            connection = connections.heap[0]
            now = connections.due[connection]
            if now >= until:
                return events
            delay = charge(traffic, connection, now)
            answer(traffic, connection, now, delay)
        send(traffic, connection, now)
        if until != BEGIN:
            sift(connections, 0)
        events += 1
    for position in range(len(connections.heap) // 2 - 1, -1, -1):
        sift(connections, position)
    return 0


@compilable
def end_traffic(traffic: Traffic) -> None:
    """Counts what still waits: what arrived, and was neither delivered nor rejected, and data that was not fetched."""
    behaviours, connections = traffic.behaviours, traffic.connections
    for connection in range(len(connections.heap)):
        row = connections.behaviour[connection]
        if behaviours.closed[row] == 0:
            continue  # every arrival is an event
        kind, topics = behaviours.kind[row], behaviours.topics[row]
        waiting = 0
        if kind == FETCH:
            waiting = connections.pending[connection]
        elif kind >= MUTATION:
            waiting = connections.pending[connection] * load_of(traffic, connection)
        if behaviours.saturates[row] == 0:
            # Topics that were rejected are what is left of the last arrival.
            if connections.arrived[connection] != DONE and (kind == FETCH or waiting == 0):
                waiting += units_of(kind, load_of(traffic, connection), topics)
            while take(traffic, connection) != DONE:
                waiting += units_of(kind, load_of(traffic, connection), topics)
        connections.waiting_units[connection] = waiting
