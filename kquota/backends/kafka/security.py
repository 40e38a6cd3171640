"""How connections are encrypted and who we say we are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kquota.backends.tls import Tls

if TYPE_CHECKING:
    from kquota.backends.kafka.sasl import Sasl


@dataclass(frozen=True)
class KafkaSecurity:
    """TLS, SASL, both (Kafka's SSL, SASL_PLAINTEXT and SASL_SSL) or neither."""

    tls: Tls | None = None
    sasl: Sasl | None = None
