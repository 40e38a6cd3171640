"""kazoo's client, made quiet: it reports to us why its connections fail and prints nothing, and TLS is as Java's."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kquota.backends.addresses import Address
from kquota.backends.zookeeper.security import ZooKeeperSecurity, reason

if TYPE_CHECKING:
    import ssl

# kazoo's thread workers have a logger that cannot be replaced; without a handler it would print warnings on stderr.
logging.getLogger("kazoo").addHandler(logging.NullHandler())


@dataclass
class Trouble:
    """Why a client has no connection, as its threads report."""

    wake: threading.Event = field(default_factory=threading.Event)
    """Set whenever something happened."""
    failures: Counter[object] = field(default_factory=Counter)
    """How often connecting to each address failed."""
    cause: str = ""
    """The reason of the last failure."""


def quiet_client(
    address: Address,
    timeout_s: float,
    security: ZooKeeperSecurity,
    tls_context: ssl.SSLContext | None,
    trouble: Trouble,
) -> Any:
    """A KazooClient that is not started; its threads report to `trouble` why they fail, and print nothing."""
    from kazoo.client import KazooClient
    from kazoo.handlers.threading import SequentialThreadingHandler
    from kazoo.retry import KazooRetry

    class Handler(SequentialThreadingHandler):  # type: ignore[misc]
        """Tells why connections fail, and lets no thread die on the terminal."""

        def create_connection(self, *args: Any, **kwargs: Any) -> Any:
            try:
                if kwargs.get("use_ssl") and tls_context is not None:
                    # kazoo's own TLS reads files, and does not trust what Java would.
                    plain = super().create_connection(address=kwargs["address"], timeout=kwargs["timeout"])
                    return tls_context.wrap_socket(plain, server_hostname=kwargs["hostname"])
                return super().create_connection(*args, **kwargs)
            except Exception as error:
                trouble.cause = reason(error)
                trouble.failures[kwargs.get("address") or (args[0] if args else None)] += 1
                trouble.wake.set()
                raise

        def spawn(self, func: Any, *args: Any, **kwargs: Any) -> Any:
            def quiet() -> None:
                try:
                    func(*args, **kwargs)
                except Exception as error:
                    trouble.cause = trouble.cause or reason(error)
                trouble.wake.set()

            return super().spawn(quiet)

    # kazoo logs requests with their data, which may hold credentials: not even a root handler shall see them.
    silent = logging.Logger("kquota.zookeeper")
    silent.disabled = True
    sasl = {"mechanism": "DIGEST-MD5", "username": security.username, "password": security.password}
    return KazooClient(
        hosts=str(address) + address.chroot,
        # The time-out of the session is also that of connecting to one host: each must get its turn.
        timeout=timeout_s / len(address.hosts),
        handler=Handler(),
        logger=silent,
        connection_retry=KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_delay=0.5),
        read_only=True,
        randomize_hosts=True,
        sasl_options=sasl if security.uses_sasl else None,
        auth_data=None if security.digest is None else [("digest", security.digest)],
        use_ssl=security.tls is not None,
    )
