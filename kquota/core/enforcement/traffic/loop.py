"""The loop: the earliest event of all connections, its response, and the next request of the connection."""

from kquota.core.enforcement.compilable import compilable, inlined
from kquota.core.enforcement.kind import FETCH, MUTATION
from kquota.core.enforcement.traffic.arrivals import collect, load_of, merge_waiting, random_gap, take, units_of
from kquota.core.enforcement.traffic.charging import charge
from kquota.core.enforcement.traffic.counters import count_throttle
from kquota.core.enforcement.traffic.state import BEGIN, DONE, Connection, Traffic


@inlined
def answer(traffic: Traffic, connection: int, now: int, delay: int) -> None:
    """The response is sent: at once, whatever the delay; the channel is muted and the client told (KIP-219)."""
    row = traffic.connections[connection]
    client = traffic.behaviours[row.behaviour]
    if delay > 0:
        count_throttle(row, now, delay)
    row.muted = now + delay
    received = now + client.to_client
    end = received
    if client.honours != 0:
        # A consumer that is busy reads the response, and begins to wait, at its next poll.
        end = max(received, row.busy) + delay
    traffic.received[connection][row.sent % client.in_flight] = received
    traffic.ends[connection][row.sent % client.in_flight] = end
    row.sent += 1
    row.last_received = received


@inlined
def give_up(traffic: Traffic, connection: int, now: int) -> None:
    """Ends the retries of rejected topics when the time of their call is over (`KafkaAdminClient`)."""
    row = traffic.connections[connection]
    client = traffic.behaviours[row.behaviour]
    if now - row.began > client.timeout:
        row.rejected_units += row.pending * client.size
        row.pending = 0


@inlined
def sent_at(traffic: Traffic, connection: int, at: int) -> int:
    """When a client sends the next request, which is ready `at` a time; what it receives later, it does not know.

    It needs one of its `in_flight` places, and sends nothing during a throttle time that it knows (`NetworkClient`).
    Between the end of one and the response to the request that waited for it, all that is ready goes out.
    """
    row = traffic.connections[connection]
    most = traffic.behaviours[row.behaviour].in_flight
    sent = row.sent
    for response in range(max(sent - most, 0), sent):
        received = traffic.received[connection][response % most]
        if response == sent - most:
            at = max(at, received)
        if received <= at:
            at = max(at, traffic.ends[connection][response % most])
    return at


@inlined
def send_given(traffic: Traffic, connection: int, now: int, free: int) -> None:
    """Decides when the next recorded request is charged, which its client may send from `free` on.

    A client that waits for its answers thinks meanwhile: the broker answers at once, and then mutes (KIP-219). It stops
    when it stopped in the recording. Other requests queue from the time of their arrival.
    """
    row = traffic.connections[connection]
    client = traffic.behaviours[row.behaviour]
    following = row.given_next
    waits = following < row.given_end and traffic.given.thinks[following] >= 0
    if waits and row.sent > 0:
        think = traffic.given.thinks[following]
        sent = sent_at(traffic, connection, max(free, row.last_received + think))
        if sent > client.stop:
            row.given_next = row.given_end
            row.arrived = DONE
            row.due = DONE
            return
        take(traffic, connection)
        row.arrived = sent
    else:
        arrived = take(traffic, connection)
        row.arrived = arrived
        if arrived == DONE:
            row.due = DONE
            return
        sent = sent_at(traffic, connection, max(free, arrived))
    read = max(sent + client.to_broker, now, row.muted)
    row.due = read + client.latency_ms
    if client.merge > 0:
        following = row.given_next
        if following < row.given_end and traffic.given.times[following] <= read:
            merge_waiting(traffic, connection, sent, row.due)
    waited = row.due - row.arrived
    if waited > row.waited:
        row.waited = waited


@inlined
def await_processing(traffic: Traffic, connection: int) -> None:
    """A consumer that thinks processes one response and has one in store (`Fetcher`): it asks when the store is empty.

    What it gets while it is idle goes to processing at once, and the next request out with it.
    """
    row = traffic.connections[connection]
    think = traffic.given.thinks[row.given_next - 1]
    if think < 0 or row.arrived == DONE:
        return
    if row.pending > 0:
        row.arrived = DONE - 1
        return
    begun = max(row.delivered_ms, row.busy)
    row.arrived = begun
    row.busy = begun + think


@inlined
def send(traffic: Traffic, connection: int, now: int) -> None:
    """Decides when the next request of the connection is charged; `now` is the time of the last response."""
    row = traffic.connections[connection]
    client = traffic.behaviours[row.behaviour]
    if client.closed == 0:
        row.due = take(traffic, connection)
        return
    sent = client.start
    if client.think_ms > 0 and row.sent > 0:
        sent = max(sent, row.last_received + client.think_ms)
    sent = sent_at(traffic, connection, sent)
    if client.kind >= MUTATION and row.pending > 0:
        give_up(traffic, connection, sent)
    polls = client.kind == FETCH
    given = row.given_end > 0
    if polls and given:
        if row.pending == 0 and row.arrived == DONE:
            row.due = DONE
            return
        await_processing(traffic, connection)
    elif given:
        send_given(traffic, connection, now, sent)
        return
    elif polls or client.saturates != 0:
        if sent >= client.stop and (polls or row.pending == 0):
            row.due = DONE
            return
    elif row.pending == 0:  # no rejected topics that go first
        arrived = take(traffic, connection)
        row.arrived = arrived
        if arrived == DONE:
            row.due = DONE
            return
        sent = sent_at(traffic, connection, max(sent, arrived))
    if client.kind >= MUTATION and row.pending == 0:
        row.began = sent
    # The broker reads the next request of a connection when the response to the last is sent and the mute is over.
    read = max(sent + client.to_broker, now, row.muted)
    if polls and client.saturates == 0:
        collect(traffic, connection, read)
        if row.pending == 0:
            read = min(row.arrived, read + client.max_wait_ms)
    row.due = read + client.latency_ms


@compilable
def before(one: Connection, other: Connection) -> bool:
    """Whether one connection's event is before another's."""
    if one.due != other.due:
        return one.due < other.due
    return one.tie < other.tie


@compilable
def sift(traffic: Traffic, position: int) -> None:
    """Puts the connection at a position of the heap where it belongs, further down."""
    heap, connections = traffic.heap, traffic.connections
    count = len(heap)
    moving = heap[position]
    while True:
        child = 2 * position + 1
        if child >= count:
            break
        if child + 1 < count and before(connections[heap[child + 1]], connections[heap[child]]):
            child += 1
        if not before(connections[heap[child]], connections[moving]):
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
    heap = traffic.heap
    events = 0
    while until != BEGIN or events < len(heap):
        if until == BEGIN:
            connection, now = events, traffic.sensors.origin
            row = traffic.connections[connection]
            client = traffic.behaviours[row.behaviour]
            if row.random != 0:
                row.target = row.step * random_gap(row)
            polls = client.kind == FETCH and client.closed != 0
            if polls and client.saturates == 0:
                row.arrived = take(traffic, connection)
        else:
            connection = heap[0]
            now = traffic.connections[connection].due
            if now >= until:
                return events
            delay = charge(traffic, connection, now)
            answer(traffic, connection, now, delay)
        send(traffic, connection, now)
        if until != BEGIN:
            sift(traffic, 0)
        events += 1
    for position in range(len(heap) // 2 - 1, -1, -1):
        sift(traffic, position)
    return 0


@compilable
def end_traffic(traffic: Traffic) -> None:
    """Counts what still waits: what arrived, and was neither delivered nor rejected, and data that was not fetched."""
    for connection in range(len(traffic.heap)):
        row = traffic.connections[connection]
        client = traffic.behaviours[row.behaviour]
        if client.closed == 0:
            continue  # every arrival is an event
        kind, topics = client.kind, client.topics
        waiting = 0
        if kind == FETCH:
            waiting = row.pending
        elif kind >= MUTATION:
            waiting = row.pending * load_of(traffic, connection)
        if client.saturates == 0:
            # Topics that were rejected are what is left of the last arrival.
            if row.arrived != DONE and (kind == FETCH or waiting == 0):
                waiting += units_of(kind, load_of(traffic, connection), topics)
            while take(traffic, connection) != DONE:
                waiting += units_of(kind, load_of(traffic, connection), topics)
        row.waiting_units = waiting
