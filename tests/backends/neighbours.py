"""Other tools at work on the same cluster: whoever administers its users, and leaves nodes in its ZooKeeper."""

from collections.abc import Mapping
from typing import Any, Protocol

from kquota.backends import znode
from tests.support.waiting import until

# The nodes of a user's credentials as Kafka's tool writes them (`ScramCredentialUtils.credentialToString`).
CREDENTIALS = "salt=c2FsdA==,stored_key=a2V5,server_key=c2Vy,iterations=4096"
_ITERATIONS = 4096
_VISIBLE_S = 60.0


class Neighbour(Protocol):
    """Administers SCRAM credentials, which ZooKeeper keeps in the same node as the user's quotas."""

    def add_credentials(self, user: str) -> None:
        """Gives a user without credentials some."""
        ...

    def credentials(self, user: str) -> object:
        """What is stored for the user; equal to what it was as long as nobody touched it."""
        ...


class ZooKeeperNeighbour:
    """Writes nodes as Kafka's tool does with `--zookeeper`; `client` is a kazoo client in the cluster's chroot."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def add_credentials(self, user: str) -> None:
        self.leave(f"/config/users/{user}", znode.encode_config({"SCRAM-SHA-256": CREDENTIALS}))

    def credentials(self, user: str) -> object:
        return znode.NodeConfig.decode(self._client.get(f"/config/users/{user}")[0]).entries.get("SCRAM-SHA-256")

    def leave(self, path: str, data: bytes | None) -> None:
        """A new node, and its parents without data."""
        for parent in znode.parents(path):
            if not self._client.exists(parent):
                self._create(parent, None)
        self._create(path, data)

    def remove(self, path: str) -> None:
        """The node and all below it, if it is there."""
        if self._client.exists(path):
            self._client.delete(path, recursive=True)

    def _create(self, path: str, data: bytes | None) -> None:
        from kazoo.protocol.serialization import Create
        from kazoo.security import OPEN_ACL_UNSAFE

        # kazoo's own create would write empty data for none.
        handle = self._client.handler.async_result()
        self._client._call(Create(self._client.chroot + path, data, OPEN_ACL_UNSAFE, 0), handle)
        handle.get()


class BrokerNeighbour:
    """Administers users through a broker; `settings` are confluent-kafka's. `close` takes back what was added."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        from confluent_kafka.admin import AdminClient

        self._client = AdminClient(dict(settings))
        self._added: list[str] = []

    def add_credentials(self, user: str) -> None:
        from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, _ITERATIONS)
        self._added.append(user)
        self._alter(UserScramCredentialUpsertion(user, info, b"secret"))
        until(lambda: self.credentials(user), f"the broker does not show the credentials of {user}")

    def credentials(self, user: str) -> object:
        # One user alone that has none is an error.
        users = self._client.describe_user_scram_credentials().result(_VISIBLE_S)
        found = users.get(user)
        return found and {info.mechanism: info.iterations for info in found.scram_credential_infos}

    def close(self) -> None:
        from confluent_kafka.admin import ScramMechanism, UserScramCredentialDeletion

        for user in self._added:
            self._alter(UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_256))

    def _alter(self, alteration: Any) -> None:
        for future in self._client.alter_user_scram_credentials([alteration]).values():
            future.result(_VISIBLE_S)
