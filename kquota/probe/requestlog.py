"""The request-handler time of a probe's requests, from the JSON request log of its broker."""

import json
from collections.abc import Sequence
from pathlib import Path

from kquota.core.findings.probe import Exchange
from kquota.errors import InputError


def handler_ms(path: Path, client_id: str, exchanges: Sequence[Exchange]) -> list[float]:
    """The `localTimeMs` of each exchange; 0 for one that is not in the log.

    A log may hold several runs: of lines with the same client-id, version and correlation id the last one counts.
    Raises InputError for a file that cannot be read, and for one that has none of the requests.
    """
    found: dict[tuple[str, int, int], float] = {}
    try:
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                if client_id not in line:
                    continue
                try:
                    entry = json.loads(line[line.index("{") : line.rindex("}") + 1])
                    header = entry["requestHeader"]
                    if header["clientId"] == client_id:
                        name = header["requestApiKeyName"].replace("_", "").lower()
                        key = (name, header["requestApiVersion"], header["correlationId"])
                        found[key] = float(entry["localTimeMs"])
                except (ValueError, KeyError, TypeError):
                    continue
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    times = [found.get((each.api.lower(), each.version, each.correlation_id)) for each in exchanges]
    if exchanges and not any(times):
        raise InputError(
            f"{path} has no request of the probe", hint="the broker's logger kafka.request.logger has to be at DEBUG"
        )
    return [time or 0.0 for time in times]
