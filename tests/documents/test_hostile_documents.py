"""Documents that are meant to harm, or are broken: an error of one line, soon; and the fast readers read as others."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from kquota.cli.main import run
from kquota.documents import plain
from kquota.documents.encoding import entry_lines, line_of, read_document, schema, schema_names, to_yaml
from kquota.documents.fits import compiled
from kquota.documents.quotas import read_quotas
from kquota.documents.validation import MOST
from kquota.errors import InputError
from kquota.files import read_bytes

HEAD = "kind: kquota.quotas\nversion: 1\n"


def quota(value: str) -> str:
    return f"{HEAD}quotas: [{{entity: {{user: a}}, values: {{producer_byte_rate: {value}}}}}]\n"


LEVELS = "".join(f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(8))
MERGES = "".join(f"{chr(98 + n)}: &{chr(98 + n)} {{<<: [{','.join(['*' + chr(97 + n)] * 9)}]}}\n" for n in range(8))
CASES = {
    "bomb.yaml": f"a: &a [x,x,x,x,x,x,x,x,x]\n{LEVELS}{HEAD}quotas: *i\n",
    "merges.yaml": f"a: &a {{x: 1}}\n{MERGES}{HEAD}quotas: [*i]\n",
    "chain.yaml": "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 3000)) + HEAD,
    "itself.yaml": f"{HEAD}quotas: &q [*q]\n",
    "deep.json": "[" * 100_000,
    "deeper.json": '{"a":' * 100_000,
    "deep.yaml": "a: " + "[" * 20_000,
    "closed.yaml": "a: " + "[" * 5_000 + "]" * 5_000,
    "blocks.yaml": "".join(" " * n + "a:\n" for n in range(2_000)),
    "dashes.yaml": "- " * 5_000,
    "digits.json": '{"kind":"kquota.quotas","version":1,"quotas":[],"internal":' + "9" * 5_000 + "}",
    "digits.yaml": quota("9" * 5_000),
    "tagged.yaml": quota("!!float abc"),
    "integer.yaml": quota("!!int abc"),
    "boolean.yaml": quota("!!bool x"),
    "python.yaml": quota("!!python/object/apply:os.system [true]"),
    "list-key.yaml": "? [a, b]\n: 1\n",
    "mapping-key.yaml": "{{a: b}: 1}\n",
    "half.json": json.dumps({"kind": "kquota.quotas", "version": 1, "quotas": [], "\ud800": 1}),
    "half-name.json": json.dumps(
        {
            "kind": "kquota.quotas",
            "version": 1,
            "quotas": [{"entity": {"user": "\udcff"}, "values": {"producer_byte_rate": 1}}],
        }
    ),
    "huge.yaml": quota("1" + "0" * 400),
    "exponent.json": '{"kind":"kquota.quotas","version":1e99999,"quotas":[]}',
    "twice.json": "{" + ",".join(f'"k{n}":1' for n in range(50_000)) + ',"k49999":2}',
    "regex.yaml": f'{HEAD}unmanaged: [{{user: "(a"}}]\nquotas: []\n',
    "anchor.yaml": "a: *b\n",
    "control.yaml": "a: \x01\n",
}


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_file_is_an_input_error_soon(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(CASES[name])
    Path("empty.json").write_text('{"kind":"kquota.quotas","version":1,"quotas":[]}')
    for arguments in (
        ("lint", name),
        ("plan", name, "--quotas", "empty.json"),
        ("apply", name, "--zookeeper", "127.0.0.1:1", "--timeout", "1", "--journal", "journal"),
        ("simulate", name),
        ("import", name, "--from", "rpk"),
        ("import", name, "--from", "jikkou"),
        ("audit", name, "--quotas", name),
        ("config", "get-contexts"),
    ):
        monkeypatch.setenv("KQUOTA_CONFIG", name)
        started = time.process_time()
        code = run(arguments)
        err = capsys.readouterr().err
        assert code in (3, 9) or (arguments[0] in ("config", "import", "audit") and code in (0, 3)), (arguments, err)
        assert time.process_time() - started < 10, arguments
        lines = err.splitlines()
        others = sum(line.startswith(f"kquota: {name}") for line in lines[1:])
        assert others <= MOST, err
        assert len(lines) - others <= 1 + (arguments[0] == "apply"), err
        assert len(err) < 1_000


def test_aliases_that_stand_for_little_are_read(tmp_path: Path) -> None:
    (tmp_path / "q.yaml").write_text(
        f"{HEAD}quotas:\n"
        "  - {entity: {user: a}, values: &v {producer_byte_rate: 1}}\n"
        "  - {entity: {user: b}, values: *v}\n"
        "  - {entity: {user: c}, values: {<<: *v, consumer_byte_rate: 2}}\n"
    )

    assert [len(values) for values in read_quotas(tmp_path / "q.yaml").values()] == [1, 1, 2]


# The fast readers

_words = st.text("abz_.-/%1 :#,[]{}'\"\\é\n", max_size=6)
_scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**20), 10**20), st.floats(allow_nan=False, allow_infinity=False), _words,
    st.sampled_from(["yes", "Null", "10 MiB/s", "0x1F", "010", "1e5", "1_000", "2026-01-01", "1:30", "~", "="]),
)  # fmt: skip
_data = st.recursive(
    _scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_words, inner, max_size=3)),
    max_leaves=12,
)
_lines = st.lists(
    st.builds(
        "{}{}".format,
        st.sampled_from(["", " ", "  ", "    ", "- ", "  - ", "  -  "]),
        st.sampled_from(
            ["a: 1", "b:", "c: {x: y}", "- d", "e: 'f'", "# g", 'h: "i" # j', "k: [1, a b]", "l: m: n", "'o': p", "q",
             "---", "r: s #t", "u: v#w", "x:y", "true: 1", "z: -1", "a: {}", "a: {b: {c: d}, e: [f]}", "b: yes",
             "a: {b : c}", "a: {b:c}", "a: [b,c]", "a:  1 ", "a: 'it''s'", "a: b c ", "a: {b: c }",
             "a: -b", "a: .5", "a: 5.", "a: 0b1", "a: 1MB", "a: 10 %", "a: %b", "a: /b", "a: _", "a: a%b", "a: {1: b}",
             "a : 1", "", "a: b,c=d", "a: b]", "a: b 'c' {", "a: 10.0.0.1", "a: b  c  # d", "- a,b", "a: ü b"]
        ),
    ),
    max_size=6,
)  # fmt: skip


def library(text: str) -> Any:
    return YAML(typ="safe", pure=True).load(text)


@given(_data, st.booleans(), st.booleans())
def test_what_is_read_fast_is_read_alike(data: Any, flow: bool, ours: bool) -> None:
    document = {"data": data, "other": 1}
    if ours:
        text = to_yaml(document)
    else:
        yaml = YAML(typ="safe", pure=True)
        yaml.default_flow_style = flow
        yaml.width = 4096
        out = io.StringIO()
        yaml.dump(document, out)
        text = out.getvalue()
    same(text)


@given(_lines)
def test_lines_at_random_are_read_alike(lines: list[str]) -> None:
    same("\n".join(lines))


def same(text: str) -> None:
    try:
        fast = plain.read(text)
    except plain.NotPlain:
        return
    try:
        slow = library(text)
    except YAMLError as error:
        raise AssertionError(f"{text!r} is read as {fast!r}") from error
    assert fast == slow
    assert json.dumps(fast, sort_keys=True) == json.dumps(slow, sort_keys=True)  # 1 is not True, nor 1.0


@given(_data, st.sampled_from(schema_names()))
def test_what_fits_fits(data: Any, name: str) -> None:
    check_fit(data if isinstance(data, dict) else {"kind": data}, name)


SEEDS = [
    {"kind": "kquota.quotas", "version": 1, "quotas": [{"entity": {"user": "a"}, "values": {"producer_byte_rate": 1}}]},
    {"kind": "kquota.quotas", "version": 1, "quotas": [], "unmanaged": [{"user": "x.*"}], "variables": {"a": 1}},
    {"kind": "kquota.quotas", "version": 1.0, "quotas": [], "clusters": {"a": {"variables": {"b": "c"}}}},
]


@given(st.sampled_from(SEEDS), st.randoms(use_true_random=False), _scalars)
def test_what_nearly_fits(seed: dict[str, Any], random: Any, value: Any) -> None:
    document = json.loads(json.dumps(seed))
    places: list[tuple[Any, Any]] = []

    def walk(part: Any) -> None:
        for key in list(part) if isinstance(part, dict) else range(len(part)) if isinstance(part, list) else ():
            places.append((part, key))
            walk(part[key])

    walk(document)
    part, key = random.choice(places)
    part[key] = value
    check_fit(document, "quotas")


def check_fit(document: Any, name: str) -> None:
    rules = {key: value for key, value in schema(name).items() if key != "$id"}
    if compiled(schema(name))(document):
        assert Draft202012Validator(rules).is_valid(document)


STYLES = (
    '{"kind": "kquota.quotas", "version": 1,\n "quotas": [\n  {"entity": {"user": "a"},\n   "values": {}},\n'
    '  {"entity": {"user": "b"},\n   "values": {"bad_key": 1}}]}\n',
    f"{HEAD}quotas:\n  # one\n  - entity: {{user: a}}\n    values: {{}}\n  - entity: {{user: b}}\n"
    "    values: {bad_key: 1}\n",
    f"{HEAD}quotas:\n- entity:\n    user: a\n  values: {{}}\n- entity:\n    user: b\n  values:\n    bad_key: 1\n",
    f"{HEAD}quotas:\n  - entity: !!map {{user: a}}\n    values: {{}}\n  - entity: {{user: b}}\n"
    "    values: {bad_key: 1}\n",
)


@pytest.mark.parametrize("text", STYLES)
def test_lines_are_those_of_the_library(text: str, tmp_path: Path) -> None:
    """However it is written, and whoever reads it."""
    from kquota.documents.encoding import _line_in, compose

    (tmp_path / "q").write_text(text)
    assert len(read_document(tmp_path / "q", "quotas")["quotas"]) == 2
    root = compose(text)
    for steps in (
        (),
        ("quotas",),
        ("quotas", 1),
        ("quotas", 1, "values"),
        ("quotas", 1, "values", "bad_key"),
        ("none",),
    ):
        assert line_of(text, steps) == _line_in(root, steps), steps
    assert entry_lines(tmp_path / "q", "quotas") == tuple(
        int(_line_in(root, ("quotas", index)).rpartition(" ")[2]) for index in range(2)
    )
    with pytest.raises(InputError, match=r"line \d+: quotas\[1\]: unknown quota key"):
        read_quotas(tmp_path / "q")


def test_many_errors_are_found_soon(tmp_path: Path) -> None:
    """The first of 8,000, with its line; they take about seven times as long as entries without a mistake."""

    def write(values: str) -> None:
        entries = "".join(f"  - entity: {{user: u{n}}}\n    values: {values}\n" for n in range(8_000))
        (tmp_path / "q.yaml").write_text(f"{HEAD}quotas:\n  - entity: {{user: x}}\n    values: {{}}\n{entries}")

    write("{producer_byte_rate: 1}")
    started = time.process_time()
    assert len(read_quotas(tmp_path / "q.yaml")) == 8_000
    well = time.process_time() - started
    write("[1]")
    started = time.process_time()
    with pytest.raises(InputError, match=r"q.yaml, line 7: quotas\[1\].values: expected object, found array"):
        read_quotas(tmp_path / "q.yaml")
    # Of the same process, and so on any machine: what grows with the square of the mistakes is far beyond.
    assert time.process_time() - started < 40 * well


def test_yaml_that_is_large_and_not_plain_is_refused(tmp_path: Path) -> None:
    entries = "".join(f"  - entity: !!map {{user: user-{n:09}}}\n    values: {{}}\n" for n in range(100_000))
    (tmp_path / "q.yaml").write_text(f"{HEAD}quotas:\n{entries}")

    with pytest.raises(InputError, match="YAML of more than 4 MiB is read only where it is written plainly"):
        read_quotas(tmp_path / "q.yaml")


# Files that are none


@pytest.mark.parametrize(
    "arguments",
    [
        ("lint", "pipe"),
        ("plan", "pipe", "--quotas", "empty.json"),
        ("plan", "empty.json", "--quotas", "pipe"),
        ("simulate", "pipe", "--quotas", "empty.json"),
        ("describe", "--bootstrap-server", "127.0.0.1:1", "--command-config", "pipe"),
        ("describe", "--zookeeper", "127.0.0.1:1", "--zk-tls-config-file", "pipe"),
        ("describe", "--zookeeper", "127.0.0.1:1", "--zk-jaas-file", "pipe"),
        ("describe", "--bootstrap-server", "127.0.0.1:1", "--command-config", "store.properties"),
        ("resolve", "--user", "a", "--quotas", "empty.json", "--server-properties", "pipe", "--kafka-version", "2.8"),
    ],
)
def test_a_named_pipe_is_not_waited_for(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("empty.json").write_text('{"kind":"kquota.quotas","version":1,"quotas":[]}')
    Path("store.properties").write_text("security.protocol=SSL\nssl.truststore.location=pipe\n")

    assert run(arguments) == 3
    assert "pipe: is a named pipe, not a file" in capsys.readouterr().err


def test_what_a_shell_puts_in_the_place_of_a_file_is_read(tmp_path: Path) -> None:
    """A process substitution, and standard input by its names."""
    quotas = tmp_path / "q.json"
    quotas.write_text('{"kind":"kquota.quotas","version":1,"quotas":[]}')
    kquota = f"{sys.executable} -m kquota lint"
    script = f"{kquota} <(cat {quotas}) && cat {quotas} | {kquota} /dev/stdin && {kquota} - < {quotas}"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}

    ran = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env=environment, timeout=100, check=False
    )

    assert (ran.returncode, ran.stderr) == (0, "nothing found\n" * 3)


def test_a_file_without_an_end_is_left_soon(tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(b"x" * ((1 << 20) + 1))
    for path in (Path("/dev/zero"), large):
        with pytest.raises(InputError, match="is larger than 1 MiB"):
            read_bytes(path, 1 << 20)
    with pytest.raises(InputError, match="no name of a file"):
        read_bytes(Path("a\0b"))
