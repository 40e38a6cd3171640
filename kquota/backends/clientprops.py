"""Java properties files of Kafka's own tools → connection settings."""

from __future__ import annotations

from pathlib import Path

from kquota.backends.zookeeper import ZooKeeperSecurity
from kquota.errors import InputError

_STORES = {"keystore": "the client's certificate and key", "truststore": "the authorities to trust"}


def read_properties(path: Path) -> dict[str, str]:
    """The properties of a file in `java.util.Properties` syntax. Raises InputError when it cannot be read."""
    import javaproperties

    try:
        with path.open("rb") as file:
            properties: dict[str, str] = javaproperties.load(file)
    except IsADirectoryError:
        raise InputError(f"{path}: is a directory, not a file") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except (ValueError, javaproperties.InvalidUEscapeError) as error:
        raise InputError(f"{path}: not a properties file: {error}") from None
    return properties


def zookeeper_security(tls_file: Path | None, username: str | None, password: str | None) -> ZooKeeperSecurity:
    """What `--zk-tls-config-file` and the SASL credentials of the environment say.

    Of the file, as in Kafka, only the `zookeeper.ssl.*` and `zookeeper.clientCnxnSocket` names count. Stores are PEM
    files; raises InputError for another type.
    """
    if tls_file is None:
        return ZooKeeperSecurity(username=username, password=password)
    properties = read_properties(tls_file)
    stores: dict[str, Path | None] = {}
    for store, what in _STORES.items():
        location = properties.get(f"zookeeper.ssl.{store}.location")
        kind = properties.get(f"zookeeper.ssl.{store}.type", "PEM" if (location or "").endswith(".pem") else "JKS")
        if location is not None and kind.upper() != "PEM":
            raise InputError(
                f"{tls_file}: zookeeper.ssl.{store} is a {kind} store, which cannot be read yet",
                hint=f"export {what} as PEM and set zookeeper.ssl.{store}.type=PEM",
            )
        stores[store] = Path(location) if location is not None else None
    verify = properties.get("zookeeper.ssl.endpoint.identification.algorithm", "HTTPS") != ""
    return ZooKeeperSecurity(
        username=username,
        password=password,
        tls=properties.get("zookeeper.ssl.client.enable", "false").lower() == "true",
        ca=stores["truststore"],
        cert=stores["keystore"],
        verify=verify,
    )
