"""Asks a Prometheus (or what answers as it does: Thanos, Mimir, VictoriaMetrics) for the quota metrics of brokers.

Its answers are kept as files, which `kquota.audit.sources.prometheus` reads. Every sample with the time it was scraped
at is asked for (`query` of a range selector), or by steps (`query_range`); an hour, or 10 000 steps, at a time.

Credentials come from the environment: `KQUOTA_PROMETHEUS_TOKEN`, or `KQUOTA_PROMETHEUS_USERNAME` with
`KQUOTA_PROMETHEUS_PASSWORD`. They go to the address that was given and nowhere else: redirects are not followed.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from kquota.backends import http
from kquota.backends.secrets import without
from kquota.errors import InputError, Unauthorized, Unreachable
from kquota.metrics.series import SELECTOR

CHUNK_S: Final = 3600
MOST_STEPS: Final = 10_000
"""Prometheus answers with at most 11 000 points of a series."""
_HALF: Final = re.compile("[\ud800-\udfff]")
_LARGEST_ANSWER: Final = 512 << 20


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
        # A mounted secret ends with its file's line end.
        token, username, password = (
            None if (value := environment.get(prefix + name)) is None else value.rstrip("\r\n")
            for name in ("TOKEN", "USERNAME", "PASSWORD")
        )
        if token is not None and not re.fullmatch(r"[!-~]+", token):
            raise InputError(f"{prefix}TOKEN is no token: it is empty, or has blanks or other characters than ASCII")
        if any(map(_HALF.search, filter(None, (username, password)))):
            raise InputError(f"{prefix}USERNAME and {prefix}PASSWORD are not valid Unicode")
        if (username is None) != (password is None):
            raise InputError(f"{prefix}USERNAME and {prefix}PASSWORD go together")
        return cls(token, username, password)

    @property
    def header(self) -> dict[str, str]:
        """The Authorization header, if there is one."""
        if self.token is not None:
            return {"Authorization": f"Bearer {self.token}"}
        if self.username is None:
            return {}
        return {"Authorization": "Basic " + base64.b64encode(f"{self.username}:{self.password}".encode()).decode()}


@dataclass(frozen=True)
class Server:
    """Where to ask. Raises InputError for a URL that is not http or https, or that holds credentials."""

    url: str
    credentials: Credentials = field(default_factory=Credentials)
    timeout_s: float = 30.0

    def __post_init__(self) -> None:
        if not http.is_url(self.url):
            raise InputError("--prometheus takes an http or https URL such as http://prometheus:9090")
        if "@" in urlsplit(self.url).netloc:
            raise InputError(
                "--prometheus takes no credentials in the URL",
                hint="set KQUOTA_PROMETHEUS_TOKEN, or KQUOTA_PROMETHEUS_USERNAME and KQUOTA_PROMETHEUS_PASSWORD",
            )

    @property
    def shown_url(self) -> str:
        """The URL without what could be a secret."""
        return re.split("[?#]", self.url, maxsplit=1)[0]

    def ask(self, endpoint: str, parameters: Mapping[str, Any], file: Path) -> None:
        """Keeps the answer, if it is one of success, in a file.

        Raises Unauthorized, InputError (a bad query, an answer beyond 512 MiB) and Unreachable.
        """
        where = f"Prometheus at {self.shown_url}"
        sent = self.credentials.header.get("Authorization", "").rpartition(" ")[2]
        secrets = (self.credentials.token, self.credentials.password, sent)
        headers = {**self.credentials.header, "Accept": "application/json", "User-Agent": "kquota"}
        url, body = f"{self.url.rstrip('/')}/api/v1/{endpoint}", urlencode(parameters).encode()
        try:
            with file.open("wb") as out:
                http.fetch(url, headers, out, body=body, timeout_s=self.timeout_s, most=_LARGEST_ANSWER)
        except http.TooLarge as error:
            hint = "--prometheus-match narrows the series, --step asks for fewer samples"
            raise InputError(f"{where}: {error}", hint=hint) from None
        except http.NoAnswer as error:
            reason = without(error.said("error"), *secrets)
            if error.code in (401, 403):
                hint = "set KQUOTA_PROMETHEUS_TOKEN, or KQUOTA_PROMETHEUS_USERNAME and KQUOTA_PROMETHEUS_PASSWORD"
                raise Unauthorized(f"{where} answers {error.code}{reason}", hint=hint) from None
            if error.code in (400, 422):
                raise InputError(f"{where} refuses the query{reason}", hint="check --prometheus-match") from None
            if error.code is not None:
                raise Unreachable(f"{where} answers {error.code}{reason}") from None
            raise Unreachable(f"cannot reach {where}: {without(str(error), *secrets)}") from None
        except ValueError:
            raise InputError(f"{where} cannot be asked: its URL or the credentials cannot be sent") from None
        with file.open("rb") as written:
            if b'"success"' not in written.read(200):
                raise Unreachable(f"{where} does not answer as Prometheus does")


def selector(matchers: str | None, metrics: str = SELECTOR) -> str:
    """The series to ask for: the quota metrics, with these matchers besides."""
    return metrics if not matchers else metrics[:-1] + f",{matchers}}}"


def fetch(server: Server, selected: str, start: int, end: int, step: int | None, folder: Path) -> list[Path]:
    """The files, in that folder, with all samples from `start` to `end` (s), or one for each `step` (s)."""
    files = []
    for number, (endpoint, parameters) in enumerate(_questions(selected, start, end, step)):
        file = folder / f"{number:06}.json"
        server.ask(endpoint, parameters, file)
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
