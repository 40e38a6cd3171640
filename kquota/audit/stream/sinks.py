"""Where episodes go besides the output of the command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kquota.core.findings.episode import Episode
from kquota.documents.encoding import to_json_line
from kquota.documents.episode import episode_document
from kquota.errors import InputError


class Sink(Protocol):
    """Takes episodes as they come."""

    def put(self, episodes: Sequence[Episode]) -> None:
        """Passes episodes on; they are there when this returns."""

    def close(self) -> None:
        """Ends it."""


class JsonLines:
    """A file with a line of JSON for each state of an episode; lines are appended."""

    def __init__(self, path: str) -> None:
        try:
            self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 - `close` closes it
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}: cannot write episodes there") from None

    def put(self, episodes: Sequence[Episode]) -> None:
        """Appends a line each."""
        for episode in episodes:
            self._file.write(to_json_line(episode_document(episode)) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def open_sink(target: str) -> Sink:
    """The sink that a text names. Raises InputError for one that cannot be used."""
    return JsonLines(target)
