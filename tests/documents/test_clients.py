"""Observed clients, from whatever names them."""

import pytest

from kquota.core.resolve.reach import Client
from kquota.documents.clients import read_clients
from kquota.errors import InputError

USAGE = '{"time_ms": 1700000000000, "user": "alice", "client_id": null, "api": "produce", "bytes": 5}\n'


@pytest.mark.parametrize(
    ("text", "clients"),
    [
        ("user,client_id\nalice,app\nbob,\nalice,app\n", [Client("alice", "app"), Client("bob", "")]),
        ("ip,user,client-id\n10.0.0.7,alice,app\n", [Client("alice", "app", "10.0.0.7")]),
        ('time_ms,user\n1,"CN=a,O=b"\n', [Client("CN=a,O=b", "")]),
        ('\nuser,client_id\n"a\nb",c\n', [Client("a\nb", "c")]),
        (USAGE + "\n" + USAGE.replace("null", '"app"'), [Client("alice", ""), Client("alice", "app")]),
    ],
)
def test_rows_become_clients(text: str, clients: list[Client]) -> None:
    assert list(read_clients(text.splitlines(keepends=True), "c")) == clients


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "c: there are no clients in it"),
        ("name\nalice\n", "c, line 1: no column 'user'"),
        ("[x] DEBUG Completed request:{,}\n", "c, line 1: no column 'user'"),
        ("user,client_id\nalice,app\n,app\n", "c, line 3: no user"),
        (USAGE + "{]\n", "c, line 2: not a JSON object"),
        (USAGE + '{"user": ' + "[" * 50_000, "c, line 2: not a JSON object"),
        (USAGE.replace('"alice"', "5"), "c, line 1: user: expected a name"),
        (USAGE + '{"client_id": "app"}', "c, line 2: no user"),
    ],
)
def test_what_is_none(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        list(read_clients(text.splitlines(keepends=True), "c"))
