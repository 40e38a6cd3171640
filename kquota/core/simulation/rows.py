"""Members of a workload as the rows that the kernel works on."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Any, Final

from kquota.core.enforcement import Generation, Kernel, Kind
from kquota.core.enforcement.arithmetic import LONG_MAX
from kquota.core.enforcement.kernel import as_list
from kquota.core.enforcement.traffic.state import (
    METRIC_WINDOWS,
    PARTITIONS,
    Account,
    Behaviour,
    Connection,
    Given,
    Segment,
    Sensors,
    Traffic,
)
from kquota.core.simulation.members import Member
from kquota.core.simulation.result import bucket_ms_of
from kquota.core.simulation.workload import FETCH_API, PRODUCE_API, Client, Workload, plan

_GOLDEN: Final = 0.6180339887498949
"""Its multiples, without their whole parts, are spread evenly, however many there are."""


class Rows:
    """Makes fresh rows for some members; the plans are computed once."""

    def __init__(self, workload: Workload, generation: Generation, using: Kernel) -> None:
        self._workload = workload
        self._generation = generation
        self._using = using
        self._plans: dict[str, Sequence[Segment]] = {}
        self._numbers = {client.name: number for number, client in enumerate(workload.clients)}
        self.bucket_ms = bucket_ms_of(workload.duration_ms)
        self.buckets = -(-workload.duration_ms // self.bucket_ms)

    def traffic(self, members: Sequence[Member], counters: int, scrape_ms: int) -> Traffic:
        """Fresh rows for some members and their counters."""
        used = {member.client.name: member.client for member in members}
        behaviours, plans, segments = self._behaviours(list(used.values()))
        connections = self._connections(members, {name: row for row, name in enumerate(used)}, plans)
        count, using = len(connections), self._using
        places = max(_in_flight(client) for client in used.values())
        partitions = PARTITIONS if any(client.merge for client in used.values()) else 1
        return Traffic(
            self._sensors(counters, scrape_ms),
            using.rows(behaviours),
            using.rows(segments),
            using.rows(connections),
            heap=using.column(range(count), "int64"),
            received=using.table(count, places, "int64"),
            ends=using.table(count, places, "int64"),
            filled=using.table(count, partitions, "int64"),
            given=self._given(members),
        )

    def _sensors(self, count: int, scrape_ms: int) -> Sensors:
        workload, using = self._workload, self._using
        windows, controller = workload.brokers.windows, workload.brokers.controller_windows
        rows = max(count, 1)  # the first row also tells how many buckets there are
        return Sensors(
            counters=using.new_counters(rows, windows, self._generation, controller),
            meters=using.new_counters(rows, METRIC_WINDOWS, self._generation),
            origin=workload.origin_ms,
            bucket_ms=self.bucket_ms,
            scrape_ms=scrape_ms,
            accounts=using.rows([Account() for _ in range(rows)]),
            **{
                name: using.table(rows, self.buckets, "float64")
                for name in ("offered", "delivered", "throttling", "ends")
            },
        )

    def _behaviours(
        self, clients: Sequence[Client]
    ) -> tuple[Sequence[Behaviour], Mapping[str, int], Sequence[Segment]]:
        """The clients as rows, the first segment of each plan, and all segments."""
        workload = self._workload
        segments: list[Segment] = []
        firsts: dict[str, int] = {}
        ends = []
        for client in clients:
            if client.name not in self._plans:
                self._plans[client.name] = plan(client, workload.stop_of(client))
            firsts[client.name] = len(segments)
            segments += self._plans[client.name]
            ends.append(len(segments))

        own: Mapping[str, Callable[[Client], int]] = {
            **_OWN,
            "start": lambda client: workload.origin_ms + client.start_ms,
            "stop": lambda client: workload.origin_ms + workload.stop_of(client),
        }
        values = {name: own.get(name, attrgetter(name)) for name in Behaviour.__annotations__ if name != "plan_end"}
        behaviours = [
            Behaviour(**{name: int(value(client)) for name, value in values.items()}, plan_end=end)
            for client, end in zip(clients, ends, strict=True)
        ]
        return behaviours, firsts, segments or [Segment(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)]

    def _connections(
        self, members: Sequence[Member], behaviours: Mapping[str, int], plans: Mapping[str, int]
    ) -> Sequence[Connection]:
        workload = self._workload
        rows: list[Connection] = []
        taken = 0
        for member in members:
            client = member.client
            places = len(workload.brokers_of(client))
            links = client.connections * places
            given = 0 if client.given is None else client.given[1] - client.given[0]
            for number in range(client.connections):
                # A client's arrivals are dealt to its connections in turns; copies of a client are out of step.
                link = number * places + member.broker_number
                backlog = client.backlog // links + (link < client.backlog % links)
                if client.saturates and client.api == FETCH_API:
                    backlog = 0
                rows.append(
                    Connection(
                        behaviour=behaviours[client.name],
                        target=link + member.number * _GOLDEN % 1.0,
                        step=float(links),
                        random=self._seed(member, link) if client.random else 0,
                        segment=plans[client.name],
                        given_next=taken,
                        given_end=taken + given if given else 0,
                        pending=backlog,
                        offered_units=backlog,
                        tie=(self._numbers[client.name] << 40) + (member.number << 16) + link,
                    )
                )
                taken += given
        return rows

    def _seed(self, member: Member, link: int) -> int:
        """A state for the generator of random gaps: never 0 (splitmix64)."""
        state = self._workload.seed
        for part in (self._numbers[member.client.name], member.number, link):
            state = (state + part + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
            state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
            state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
            state ^= state >> 31
        return state & 0xFFFFFFFF or 1

    def _given(self, members: Sequence[Member]) -> Given:
        events, column = self._workload.events, self._using.column
        ranges = [member.client.given for member in members if member.client.given is not None]
        if events is None or not ranges:
            return Given(*(column([], "int64") for _ in Given._fields))
        count = sum(end - start for start, end in ranges)
        together = all(one[1] == other[0] for one, other in pairwise(ranges))

        def given(name: str) -> Any:
            source = getattr(events, name, None)  # nothing was charged yet
            if source is None:
                return array("q", [0 if name == "partitions" else -1]) * count
            if together:
                return source[ranges[0][0] : ranges[-1][1]]
            return [value for span in ranges for value in as_list(source[slice(*span)])]

        return Given(*(column(given(name), "int64") for name in Given._fields))


def _kind(client: Client) -> Kind:
    if client.mutates:
        return Kind.MUTATION if client.strict else Kind.PERMISSIVE
    return {PRODUCE_API: Kind.PRODUCE, FETCH_API: Kind.FETCH}.get(client.api, Kind.REQUEST)


def _in_flight(client: Client) -> int:
    """Consumers and admin clients have one request at a time on a connection."""
    return 1 if client.mutates or client.api == FETCH_API else client.in_flight


_OWN: Final[Mapping[str, Callable[[Client], int]]] = {
    "kind": _kind,
    "size": lambda client: client.partitions if client.mutates else client.size,
    "exempt": lambda client: client.exempt or (client.api == PRODUCE_API and client.acks == 0),
    "to_broker": lambda client: client.round_trip_ms // 2,
    "to_client": lambda client: client.round_trip_ms - client.round_trip_ms // 2,
    "in_flight": _in_flight,
    "timeout": lambda client: LONG_MAX if client.api_timeout_ms is None else client.api_timeout_ms,
}
"""The fields of a behaviour that are not fields of the client by the same name."""
