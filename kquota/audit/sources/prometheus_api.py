"""Asks a Prometheus (or what answers as it does: Thanos, Mimir, VictoriaMetrics) for the quota metrics of brokers.

Its answers are kept as files, which `kquota.audit.sources.prometheus` reads. Every sample with the time it was scraped
at is asked for (`query` of a range selector), or by steps (`query_range`); an hour, or 10 000 steps, at a time.

Credentials come from the environment: `KQUOTA_PROMETHEUS_TOKEN`, or `KQUOTA_PROMETHEUS_USERNAME` with
`KQUOTA_PROMETHEUS_PASSWORD`. They go to the address that was given and nowhere else: redirects are not followed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kquota.audit.sources.series import SELECTOR
from kquota.errors import InputError, Unauthorized, Unreachable

CHUNK_S: Final = 3600
MOST_STEPS: Final = 10_000
"""Prometheus answers with at most 11 000 points of a series."""
_LARGEST_ANSWER: Final = 4 << 30


@dataclass(frozen=True)
class Credentials:
    """What the server wants to see; never shown."""

    token: str | None = field(default=None, repr=False)
    username: str | None = None
    password: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Credentials:
        """Those of the environment. Raises InputError for a user without a password, and the other way round."""
        prefix = "KQUOTA_PROMETHEUS_"
        token, username, password = (environment.get(prefix + name) for name in ("TOKEN", "USERNAME", "PASSWORD"))
        if (username is None) != (password is None):
            raise InputError(f"{prefix}USERNAME and {prefix}PASSWORD go together")
        return cls(token, username, password)

    @property
    def header(self) -> dict[str, str]:
        """The Authorization header, if there is one."""
        import base64

        if self.token is not None:
            return {"Authorization": f"Bearer {self.token}"}
        if self.username is None:
            return {}
        return {"Authorization": "Basic " + base64.b64encode(f"{self.username}:{self.password}".encode()).decode()}


@dataclass(frozen=True)
class Server:
    """Where to ask. Raises InputError for what is no http or https URL, or holds credentials."""

    url: str
    credentials: Credentials = field(default_factory=Credentials)
    timeout_s: float = 30.0

    def __post_init__(self) -> None:
        from urllib.parse import urlsplit

        try:
            parts = urlsplit(self.url)
            known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            known = False
        if not known:
            raise InputError("--prometheus takes an http or https URL such as http://prometheus:9090")
        if "@" in parts.netloc:
            raise InputError(
                "--prometheus takes no credentials in the URL",
                hint="set KQUOTA_PROMETHEUS_TOKEN, or KQUOTA_PROMETHEUS_USERNAME and KQUOTA_PROMETHEUS_PASSWORD",
            )

    def ask(self, endpoint: str, parameters: Mapping[str, Any]) -> bytes:
        """The answer, if it is one of success. Raises Unauthorized, InputError (a bad query) and Unreachable."""
        import http.client
        import urllib.error
        import urllib.request
        from urllib.parse import urlencode

        class NoRedirect(urllib.request.HTTPRedirectHandler):
            """The credentials go nowhere else."""

            def redirect_request(self, *_: object) -> None:
                return None

        where = f"Prometheus at {self.url}"
        request = urllib.request.Request(  # noqa: S310 - http and https only, see above
            f"{self.url.rstrip('/')}/api/v1/{endpoint}",
            urlencode(parameters).encode(),
            {**self.credentials.header, "Accept": "application/json", "User-Agent": "kquota"},
        )
        try:
            with urllib.request.build_opener(NoRedirect()).open(request, timeout=self.timeout_s) as response:
                body: bytes = response.read(_LARGEST_ANSWER)
        except urllib.error.HTTPError as error:
            reason = _reason(error.read(1 << 16))
            error.close()
            if error.code in (401, 403):
                hint = "set KQUOTA_PROMETHEUS_TOKEN, or KQUOTA_PROMETHEUS_USERNAME and KQUOTA_PROMETHEUS_PASSWORD"
                raise Unauthorized(f"{where} answers {error.code}{reason}", hint=hint) from None
            if error.code in (400, 422):
                raise InputError(f"{where} refuses the query{reason}", hint="check --prometheus-match") from None
            raise Unreachable(f"{where} answers {error.code}{reason}") from None
        except (OSError, http.client.HTTPException) as error:
            text = getattr(error, "reason", error)
            raise Unreachable(f"cannot reach {where}: {getattr(text, 'strerror', None) or text}") from None
        if b'"success"' not in body[:200]:
            raise Unreachable(f"{where} does not answer as Prometheus does")
        return body


def selector(matchers: str | None) -> str:
    """The series to ask for: the quota metrics, with these matchers besides."""
    return SELECTOR if not matchers else SELECTOR[:-1] + f",{matchers}}}"


def fetch(server: Server, selected: str, start: int, end: int, step: int | None, folder: Path) -> list[Path]:
    """The files, in that folder, with all samples from `start` to `end` (s), or one for each `step` (s)."""
    files = []
    for number, (endpoint, parameters) in enumerate(_questions(selected, start, end, step)):
        file = folder / f"{number:06}.json"
        file.write_bytes(server.ask(endpoint, parameters))
        files.append(file)
    return files


def _questions(selected: str, start: int, end: int, step: int | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """(endpoint, parameters) of each request, in the order of time."""
    length = CHUNK_S if step is None else max(CHUNK_S, MOST_STEPS * step)
    for begin in range(start, end, length):
        until = min(begin + length, end)
        if step is None:
            yield "query", {"query": f"{selected}[{until - begin}s]", "time": until}
        else:
            yield "query_range", {"query": selected, "start": begin, "end": until, "step": step}


def _reason(body: bytes) -> str:
    """What an answer says of its error."""
    try:
        said = json.loads(body)["error"]
    except (ValueError, TypeError, KeyError):
        return ""
    return f": {' '.join(str(said).split())[:300]}"
