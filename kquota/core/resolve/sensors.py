"""Counters by the tags of their sensors, `user:client-id`."""


def tags(sensor: str) -> tuple[str, str]:
    """The user, as sensors have it, and the client-id. An empty tag stands for all."""
    user, _, client_id = sensor.partition(":")
    return user, client_id


class Sensors:
    """Some counters of one broker, found by the tags of their sensors. An empty tag stands for all."""

    def __init__(self) -> None:
        self._sensors: set[str] = set()
        self._users: set[str] = set()
        self._clients: set[str] = set()

    def add(self, sensor: str) -> None:
        """Adds a counter."""
        user, client_id = tags(sensor)
        self._sensors.add(sensor)
        self._users.add(user)
        self._clients.add(client_id)

    def hold(self, user: str, client_id: str) -> bool:
        """Whether one of them counts all clients with these tags."""
        return any(f"{one}:{other}" in self._sensors for one in (user, "") for other in (client_id, ""))

    def meet(self, user: str, client_id: str) -> bool:
        """Whether one of them may count a client with these tags. An empty tag may be any."""
        if user and client_id:
            return self.hold(user, client_id)
        if user:
            return not self._users.isdisjoint((user, ""))
        if client_id:
            return not self._clients.isdisjoint((client_id, ""))
        return bool(self._sensors)
