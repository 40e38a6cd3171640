"""What is known of the brokers that enforce quotas: their version and their static configuration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kquota.core.quotas.version import Version, parse_version

if TYPE_CHECKING:
    from kquota.core.enforcement.generation import BrokerSettings, Generation
    from kquota.core.quotas.snapshot import QuotaSnapshot


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """The Kafka version of the brokers, such as `3.7`, and a server.properties of one of them.

    `is_named`: whether somebody gave the version, which otherwise is the newest.
    """

    kafka_version: str = "4.0"
    server_properties: Path | str | None = None
    is_named: bool = False

    @property
    def version(self) -> Version:
        """The version as numbers. Raises InputError for a text that is none."""
        return parse_version(self.kafka_version)

    @property
    def generation(self) -> Generation:
        """How brokers of that version drop samples. Raises InputError."""
        from kquota.core.enforcement.generation import Generation

        return Generation.for_version(self.kafka_version)

    def settings(self) -> BrokerSettings | None:
        """What the server.properties says; None without one. Raises InputError."""
        version = self.version
        if self.server_properties is None:
            return None
        from kquota.backends.serverprops import read_server_properties

        return read_server_properties(Path(self.server_properties), version)

    def enforced(self, snapshot: QuotaSnapshot, settings: BrokerSettings | None = None) -> QuotaSnapshot:
        """The quotas that such brokers enforce; with settings, their static defaults too. The others are `ignored`."""
        from kquota.core.quotas.static import NO_STATIC_QUOTAS, enforced

        return enforced(snapshot, self.version, NO_STATIC_QUOTAS if settings is None else settings.static)
