"""What is kept of a recording: the packed log, and an account of what is in it."""

import collections
import gzip
import json
import re
import socket
import tempfile
from pathlib import Path


def keep(log: Path, out: Path) -> list[str]:
    """Packs a broker's request log into the folder `out`, as `kafka-request.log.gz`; returns its lines.

    Raises RuntimeError when the log names this machine.
    """
    text = log.read_text(encoding="utf-8")
    text = text[: text.rindex("\n") + 1]  # whole lines
    check_private(text)
    out.mkdir(parents=True, exist_ok=True)
    # No file name and no time in the archive: equal logs make equal files.
    with (
        (out / "kafka-request.log.gz").open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=9, mtime=0) as packed,
    ):
        packed.write(text.encode())
    return text.splitlines()


def check_private(text: str) -> None:
    """Raises RuntimeError when the log names this machine: its host name or one of its folders."""
    names = {socket.gethostname(), socket.getfqdn(), str(Path.home()), str(Path.cwd()), tempfile.gettempdir()}
    # As a whole: a short name is soon a part of some random id.
    found = sorted(
        name for name in names - {"", "/", "localhost"} if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)
    )
    if found:
        raise RuntimeError(f"the log names this machine ({', '.join(found)}): not kept")


def statistics(lines: list[str]) -> tuple[collections.Counter[str], int, collections.Counter[str]]:
    """Requests by API, throttled requests, and throttled requests by `user client-id api`."""
    apis: collections.Counter[str] = collections.Counter()
    throttled: collections.Counter[str] = collections.Counter()
    for line in lines:
        request = json.loads(line[line.index("{") : line.rindex("}") + 1])
        header = request["requestHeader"]
        api = f"{header['requestApiKeyName']} v{header['requestApiVersion']}"
        apis[api] += 1
        if request["throttleTimeMs"] > 0:
            throttled[f"{request['principal']} {header['clientId']} {api}"] += 1
    return apis, throttled.total(), throttled


def span(lines: list[str]) -> int:
    """The seconds between the first line and the last."""
    return round((_seconds(lines[-1]) - _seconds(lines[0])) % 86_400)


def _seconds(line: str) -> float:
    """The time of day of a line, `[2026-01-31 23:59:59,999]`, in seconds."""
    hours, minutes, seconds = line[12 : line.index("]")].replace(",", ".").split(":")
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)
