"""A second simulator to compare with: objects for everything, one step after the other, nothing shared with the engine.

It knows evenly spaced arrivals of one copy of a client on one broker; what brokers do is asked of the managers.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from fractions import Fraction

from kquota import QuotaKey, QuotaSnapshot
from kquota.core.enforcement import Generation, MutationSensor
from kquota.core.simulation.workload import Client, Workload
from tests.support.enforcement import (
    ClientQuotaManager,
    FetchSensor,
    ProduceSensor,
    RequestSensor,
    fetch_with_request,
    produce_with_request,
)

NEVER = 2**63


@dataclass
class Came:
    """What a client came to."""

    requests: int = 0
    offered: int = 0
    delivered: int = 0
    rejected: int = 0
    waiting: int = 0
    rejections: int = 0
    throttled: int = 0
    throttle_ms: int = 0


@dataclass
class Connection:
    """One connection; times as on the broker's clock."""

    client: Client
    number: int
    arrivals: list[int]
    backlog: int
    came: Came
    received: list[int] = field(default_factory=list)
    muted: int = 0
    throttles: list[tuple[int, int]] = field(default_factory=list)
    topics: int = 0
    began: int = 0
    taken: int = 0
    due: int = NEVER


class Oracle:
    """Runs a workload on one broker."""

    def __init__(self, workload: Workload, quotas: QuotaSnapshot, generation: Generation) -> None:
        self.workload = workload
        windows, controller = workload.brokers.windows, workload.brokers.controller_windows
        made = {"windows": windows, "generation": generation}

        def values(key: QuotaKey) -> dict:  # type: ignore[type-arg]
            return {entity: values[key] for entity, values in quotas.items() if key in values}

        key = QuotaKey.PRODUCER_BYTE_RATE
        self.produce = ClientQuotaManager(key, lambda: ProduceSensor(**made), values(key))  # type: ignore[arg-type]
        key = QuotaKey.CONSUMER_BYTE_RATE
        self.fetch = ClientQuotaManager(key, lambda: FetchSensor(**made), values(key))  # type: ignore[arg-type]
        key = QuotaKey.REQUEST_PERCENTAGE
        self.request = ClientQuotaManager(key, lambda: RequestSensor(**made), values(key))  # type: ignore[arg-type]
        key = QuotaKey.CONTROLLER_MUTATION_RATE
        self.mutation = ClientQuotaManager(key, lambda: MutationSensor(windows=controller), values(key))
        self.managers = {manager.key: manager for manager in (self.produce, self.fetch, self.request, self.mutation)}
        self.came = {client.name: Came() for client in workload.clients}
        self.connections = [
            self.connect(client, number) for client in workload.clients for number in range(client.connections)
        ]

    def connect(self, client: Client, number: int) -> Connection:
        origin, stop = self.workload.origin_ms, self.workload.stop_of(client)
        arrivals = []
        if client.pace is not None:
            k = 0
            while True:
                place = number + k * client.connections
                at = client.start_ms + Fraction(1000 * place) / Fraction(client.pace)
                if at >= stop or (client.requests is not None and place >= client.requests):
                    break
                arrivals.append(origin + int(at))
                k += 1
        backlog = client.backlog // client.connections + (number < client.backlog % client.connections)
        came = self.came[client.name]
        came.offered += client.units * len(arrivals) + backlog
        return Connection(client, number, arrivals, backlog, came)

    def run(self) -> dict[str, Came]:
        end = self.workload.origin_ms + self.workload.duration_ms
        changes = list(self.workload.changes)
        for connection in self.connections:
            self.plan(connection, self.workload.origin_ms)
        while True:
            # Stable: at the same ms clients go in the order of the workload, and their connections by number.
            connection = min(self.connections, key=lambda one: one.due)
            now = connection.due
            if now >= end:
                break
            while changes and self.workload.origin_ms + changes[0].at_ms <= now:
                change = changes.pop(0)
                for key, value in change.values.items():
                    self.managers[key].update(change.entity, value)
            delay = self.charge(connection, now)
            came = connection.came
            came.requests += 1
            if delay > 0:
                came.throttled += 1
                came.throttle_ms += delay
            connection.muted = now + delay
            received = now + connection.client.round_trip_ms - connection.client.round_trip_ms // 2
            connection.received.append(received)
            if connection.client.honours:
                connection.throttles.append((received, received + delay))
            self.plan(connection, now)
        for connection in self.connections:
            self.count_waiting(connection)
        return self.came

    def count_waiting(self, connection: Connection) -> None:
        client, came = connection.client, connection.came
        if not client.closed:
            return
        if client.api == "fetch":
            fetched = connection.taken
            came.waiting += connection.backlog + client.size * len(connection.arrivals) - fetched
        else:
            came.waiting += (len(connection.arrivals) - connection.taken) * client.units
            if connection.topics:
                came.waiting -= (client.topics - connection.topics) * client.partitions

    def plan(self, connection: Connection, now: int) -> None:
        """When the next request is charged. `taken` counts what was charged; a rejected topic keeps its request."""
        client = connection.client
        origin = self.workload.origin_ms
        left = connection.arrivals[connection.taken :] if client.api != "fetch" or not client.closed else []
        if not client.closed:
            connection.due = left[0] if left else NEVER
            return
        depth = 1 if client.api == "fetch" or client.mutates else client.in_flight
        sent = origin + client.start_ms
        if len(connection.received) >= depth:
            sent = max(sent, connection.received[-depth])
        if client.think_ms and connection.received:
            sent = max(sent, connection.received[-1] + client.think_ms)
        sent = self.free(connection, sent)
        timeout = client.api_timeout_ms
        if connection.topics and timeout is not None and sent - connection.began > timeout:
            connection.came.rejected += connection.topics * client.partitions
            connection.topics = 0
            connection.taken += 1
            left = left[1:]
        if client.api == "fetch":
            if sent >= origin + self.workload.stop_of(client):
                connection.due = NEVER
                return
        elif not connection.topics:
            if not left:
                connection.due = NEVER
                return
            sent = self.free(connection, max(sent, left[0]))
            connection.began = sent
        read = max(sent + client.round_trip_ms // 2, now, connection.muted)
        if client.api == "fetch" and self.available(connection, read) == 0:
            later = next((arrival for arrival in connection.arrivals if arrival > read), NEVER)
            read = min(later, read + client.max_wait_ms)
        connection.due = read + client.latency_ms

    @staticmethod
    def free(connection: Connection, at: int) -> int:
        """When the client may send again: a throttle time counts from when its answer is received (NetworkClient).

        What it sent before that is under way, and goes on.
        """
        while True:
            until = max((until for received, until in connection.throttles if received <= at), default=at)
            if until <= at:
                return at
            at = until

    @staticmethod
    def available(connection: Connection, at: int) -> int:
        """Bytes that a consumer can fetch at a time; `taken` counts bytes then."""
        arrived = sum(arrival <= at for arrival in connection.arrivals)
        return connection.backlog + arrived * connection.client.size - connection.taken

    def charge(self, connection: Connection, now: int) -> int:
        client, came = connection.client, connection.came
        request = self.request.charge(client.user, client.client_id)
        requests = request.sensor if request else RequestSensor()
        nanos = client.nanos
        delay = 0
        if client.mutates:
            charge = self.mutation.charge(client.user, client.client_id)
            topics = connection.topics or client.topics
            accepted = topics
            if charge is not None:
                response = charge.sensor.request(now, [client.partitions] * topics, strict=client.strict)
                accepted = sum(topic.accepted for topic in response.topics)
                delay = response.throttle_ms
            delay = max(delay, requests.request(now, nanos).throttle_ms)
            came.delivered += accepted * client.partitions
            came.rejections += topics - accepted
            connection.topics = topics - accepted
            if connection.topics and not (client.retry and client.closed):
                came.rejected += connection.topics * client.partitions
                connection.topics = 0
            connection.taken += connection.topics == 0
        elif client.api == "produce":
            produced = self.produce.charge(client.user, client.client_id)
            sensor = produced.sensor if produced else ProduceSensor()
            delay = produce_with_request(sensor, requests, now, client.size, nanos, client.acks).throttle_ms
            came.delivered += client.size
            connection.taken += 1
        elif client.api == "fetch":
            fetched = self.fetch.charge(client.user, client.client_id)
            bytes_ = fetched.sensor if fetched else FetchSensor()
            size = client.size
            if client.closed:
                most = max(min(client.most_bytes, bytes_.max_fetch_bytes), size)
                size = min(self.available(connection, now - client.latency_ms), most)
            delay = fetch_with_request(bytes_, requests, now, size, nanos).throttle_ms
            if delay <= 0:
                came.delivered += size
            elif not client.closed:
                came.rejected += size
            if client.closed:
                connection.taken += size if delay <= 0 else 0
            else:
                connection.taken += 1
        else:
            delay = requests.request(now, nanos).throttle_ms
            came.delivered += 1
            connection.taken += 1
        if client.network_nanos and (client.api != "produce" or client.acks != 0):
            requests.network(now, client.network_nanos)
        return max(delay, 0)


def by_client(workload: Workload, quotas: QuotaSnapshot, generation: Generation) -> dict[str, Came]:
    return defaultdict(Came, Oracle(workload, quotas, generation).run())
