"""Observed clients: rows of users, client-ids and ips, as CSV or JSON lines; also the usage tables of `kquota audit`
(schemas/usage.schema.json) in these formats.
"""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Final

from kquota.core.resolve.reach import Client
from kquota.errors import InputError

_COLUMNS: Final = {"user": "user", "client_id": "client_id", "client-id": "client_id", "ip": "ip"}
"""The names that columns may have, and what they are."""


def read_clients(lines: Iterable[str], where: str | Path) -> Iterator[Client]:
    """The clients, each once, in the order in which they come. Other columns are ignored.

    JSON lines begin with a brace, anything else is CSV with a header. A row without a client-id has the empty one,
    without an ip none that is known. Raises InputError, naming the line, for what cannot be read and for a row without
    a user.
    """
    numbered = enumerate(lines, 1)
    first = next(((number, line) for number, line in numbered if line.strip()), None)
    if first is None:
        raise InputError(f"{where}: there are no clients in it")
    rows = _json_rows if first[1].lstrip().startswith("{") else _csv_rows
    seen = set()
    for number, row in rows(chain([first], numbered), first[0], where):
        client = _client(row, f"{where}, line {number}")
        if client not in seen:
            seen.add(client)
            yield client


Numbered = Iterable[tuple[int, str]]
Rows = Iterator[tuple[int, Mapping[str, Any]]]


def _json_rows(lines: Numbered, _first: int, where: str | Path) -> Rows:
    for number, line in lines:
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise InputError(f"{where}, line {number}: not a JSON object")
        yield number, row


def _csv_rows(lines: Numbered, first: int, where: str | Path) -> Rows:
    reader = csv.DictReader((line for _, line in lines), restkey="")
    if "user" not in (reader.fieldnames or ()):
        hint = "CSV has a header: user,client_id; or JSON lines"
        if any("Completed request:" in name for name in reader.fieldnames or ()):
            hint += "; of a request log, kquota audit LOG -o json | jq -c '.findings[].clients[]' writes such lines"
        raise InputError(f"{where}, line {first}: no column 'user'", hint=hint)
    try:
        for row in reader:
            yield first - 1 + reader.line_num, row
    except csv.Error as error:
        raise InputError(f"{where}, line {first - 1 + reader.line_num}: {error}") from None


def _client(row: Mapping[str, Any], where: str) -> Client:
    names: dict[str, str] = {}
    for column, part in _COLUMNS.items():
        value = row.get(column)
        if value is None:
            continue
        if not isinstance(value, str):
            raise InputError(f"{where}: {column}: expected a name")
        names[part] = value
    if not names.get("user"):
        raise InputError(f"{where}: no user", hint="connections without one are ANONYMOUS")
    return Client(names["user"], names.get("client_id", ""), names.get("ip") or None)
