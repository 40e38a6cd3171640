"""Clients that open connections: the acceptor threads of a broker, in the place of the loop, on the same rows.

The next connection of a client is added when the one before it was taken; a rejected one may be added again.
"""

from collections.abc import Sequence

from kquota.core.enforcement import Acceptors, ConnectionManager, Generation, Verdict
from kquota.core.enforcement.traffic.arrivals import take
from kquota.core.enforcement.traffic.counters import count_event, count_throttle, deliver, mute
from kquota.core.enforcement.traffic.state import BEGIN, DONE, NONE, Traffic
from kquota.core.simulation.members import Counter, Member
from kquota.core.simulation.result import Acceptor
from kquota.core.simulation.workload import Brokers


class Accepting:
    """The acceptor threads of the listeners of one broker; the plain rows of its clients are in the members' order."""

    def __init__(
        self,
        brokers: Brokers,
        generation: Generation,
        traffic: Traffic,
        members: Sequence[Member],
        counters: Sequence[Counter],
    ) -> None:
        self._traffic, self._members, self._counters = traffic, members, counters
        self._manager = ConnectionManager(
            brokers.listeners,
            broker=brokers.connection_rate,
            inter_broker=brokers.inter_broker_listener,
            windows=brokers.windows,
            generation=generation,
        )
        self._acceptors = Acceptors[tuple[int, bool]](self._manager)
        self._listeners = {name: Acceptor(members[0].broker, name) for name in brokers.listeners}

    def run(self, until: int) -> None:
        """Runs all steps before `until`, under the limits that the rows have; BEGIN plans the first connections."""
        if until == BEGIN:
            for row in range(len(self._members)):
                self._pull(row)
            return
        accounts, connections = self._traffic.sensors.accounts, self._traffic.connections
        self._manager.ips = {
            member.ip: accounts[row.load_sensor].bound
            for member, row in zip(self._members, connections, strict=True)
            if row.load_sensor != NONE
        }
        while (now := self._acceptors.due_ms) is not None and now < until:
            step = self._acceptors.step()
            acceptor, (row, again) = self._listeners[step.listener], step.subject
            waited_ms = step.wait.delay_ms
            if step.begins:
                acceptor.connections += 1
                if waited_ms > 0:
                    acceptor.waited += 1
                    acceptor.wait_ms += waited_ms
                    acceptor.wait_max_ms = max(acceptor.wait_max_ms, waited_ms)
            if step.outcome is not None:
                connections[row].sent += 1
                if waited_ms > 0:
                    count_throttle(connections[row], now - waited_ms, waited_ms)
                self._admit(row, acceptor, now, step.outcome.ip_ms)
                if not again:
                    self._pull(row)

    def end(self, end: int) -> list[Acceptor]:
        """Counts what still waits, and leaves the state of the counters in their rows.

        Returns how long connections had to wait for the rates of the broker and the listeners.
        """
        sensors, connections = self._traffic.sensors, self._traffic.connections
        for row in range(len(self._members)):
            while take(self._traffic, row) != DONE:
                pass
            connection = connections[row]
            done = connection.delivered_units + connection.rejected_units
            connection.waiting_units = connection.offered_units - done
        for row, counter in enumerate(self._counters):
            counted = self._manager.ip_sensors.get(counter.sensor.client_id)
            if counted is not None:
                sensors.counters.ints[row][:] = counted.counter.ints
                sensors.counters.floats[row][:] = counted.counter.floats
        for name, acceptor in self._listeners.items():
            acceptor.rate = self._manager.listeners[name].measure(end)
            acceptor.broker_rate = self._manager.broker.measure(end)
        return [acceptor for acceptor in self._listeners.values() if acceptor.connections]

    def _pull(self, row: int) -> None:
        """The next connection of a client's plan joins the backlog."""
        now = take(self._traffic, row)
        if now != DONE:
            self._queue(row, now, again=False)

    def _queue(self, row: int, now: int, *, again: bool) -> None:
        member = self._members[row]
        listener = member.client.listener or next(iter(self._listeners))
        self._acceptors.add(now, listener, member.ip, (row, again))

    def _admit(self, row: int, acceptor: Acceptor, now: int, delay: int) -> None:
        """Counts a connection that was accepted, or that is closed after `delay` ms."""
        accounts, connection = self._traffic.sensors.accounts, self._traffic.connections[row]
        member, sensor = self._members[row], connection.load_sensor
        if sensor != NONE:
            rate = self._manager.ip_rate(member.ip, now)
            count_event(accounts[sensor], now, Verdict(delay, rate, 0, delay > 0), rate)
        if delay <= 0:
            deliver(self._traffic, row, now, 1)
            return
        acceptor.closed += 1
        acceptor.closed_ms += delay
        connection.rejections += 1
        count_throttle(connection, now, delay)
        mute(self._traffic, row, now, delay, False)
        if member.client.closed and member.client.retry:
            self._queue(row, now + delay + member.client.backoff_ms, again=True)
        else:
            connection.rejected_units += 1
