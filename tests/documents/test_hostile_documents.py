"""Documents that are meant to harm, or are broken: an error of one line, soon; and how values are read."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from kquota.cli.main import run
from kquota.documents import reading
from kquota.documents.encoding import entry_lines, line_of, parse, root_of, schema, schema_names, to_yaml
from kquota.documents.quotas import read_quota_file, read_quotas, read_values
from kquota.documents.validation import LIMITS, MOST, Checks
from kquota.errors import InputError
from kquota.files import read_bytes
from tests.support.processes import ran

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
    "blocks.yaml": "".join(" " * n + "a:\n" for n in range(1_000)),
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
    for arguments in (
        ("lint", name),
        ("simulate", name),
        ("import", name, "--from", "rpk"),
        ("config", "get-contexts"),
    ):
        monkeypatch.setenv("KQUOTA_CONFIG", name)
        started = time.process_time()
        code = run(arguments)
        err = capsys.readouterr().err
        assert code == 3 or (arguments[0] in ("config", "import") and code == 0), (arguments, err)
        assert time.process_time() - started < 60, arguments
        lines = err.splitlines()
        others = sum(line.startswith(f"kquota: {name}") for line in lines[1:])
        assert others <= MOST, err
        assert len(lines) - others <= 1, err
        assert len(err) < 1_000


def test_a_key_that_is_no_text() -> None:
    """Of a plan that was edited as YAML."""
    with pytest.raises(InputError, match="unknown quota key 7"):
        read_values(parse(Path("plan"), "{7: 1}"))


def test_names_that_are_numbers(tmp_path: Path) -> None:
    quotas = (
        "quotas: [{entity: {user: a}, values: {producer_byte_rate: '${7}'}, clusters: {9: {producer_byte_rate: 1}}}]"
    )
    (tmp_path / "q.yaml").write_text(
        f"{HEAD}variables: {{7: 5MB}}\nclusters: {{1.5: {{}}, 9: {{}}, b: {{}}}}\n{quotas}\n"
    )
    for cluster, rate in ((None, 5_000_000), ("1.5", 5_000_000), ("9", 1)):
        file = read_quota_file(tmp_path / "q.yaml", cluster)
        assert file.clusters == {"1.5", "9", "b"}
        assert [[*values.values()] for values in file.desired.values()] == [[rate]]
    with pytest.raises(InputError, match="no cluster 'prod' in it"):
        read_quota_file(tmp_path / "q.yaml", "prod")
    (tmp_path / "q.yaml").write_text(f"{HEAD}variables: {{7: 5MB}}\nclusters: {{b: {{}}}}\n{quotas}\n")
    with pytest.raises(InputError, match="unknown cluster '9'"):
        read_quotas(tmp_path / "q.yaml")


def test_aliases_that_stand_for_little_are_read(tmp_path: Path) -> None:
    (tmp_path / "q.yaml").write_text(
        f"{HEAD}quotas:\n"
        "  - {entity: {user: a}, values: &v {producer_byte_rate: 1}}\n"
        "  - {entity: {user: b}, values: *v}\n"
        "  - {entity: {user: c}, values: {<<: *v, consumer_byte_rate: 2}}\n"
    )

    assert [len(values) for values in read_quotas(tmp_path / "q.yaml").values()] == [1, 1, 2]


# One reader, one check

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


@given(_data)
def test_what_is_written_is_read_back(data: Any) -> None:
    """As YAML and as JSON, which is YAML too; 1 is not True, nor 1.0."""
    document = {"data": data, "other": 1}
    same = json.dumps(document, sort_keys=True)
    assert json.dumps(parse(Path("f"), to_yaml(document)), sort_keys=True) == same
    assert json.dumps(root_of(json.dumps(document, indent="\t")).value, sort_keys=True) == same


SCALARS = {
    "null": None, "~": None, "": None, "true": True, "False": False, "yes": "yes", "on": "on", "7": 7, "-7": -7,
    "010": 10, "0o10": 8, "0x1F": 31, "1_000": "1_000", "1:30": "1:30", "1.5": 1.5, "1e3": 1000.0, ".5": 0.5,
    "2026-01-01": "2026-01-01", "10 MiB/s": "10 MiB/s", "!!str 7": "7", "!!int 7": 7, "'7'": "7", "\"\\u0041\"": "A",
    "!!timestamp 2026-01-01": "2026-01-01",
}  # fmt: skip


@pytest.mark.parametrize("text", SCALARS)
@pytest.mark.parametrize("loader", ["CSafeLoader", "SafeLoader"])
def test_scalars_are_those_of_yaml_1_2(text: str, loader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in the zipapp, where the library has no parser in C."""
    monkeypatch.setattr(reading, "_PARSER", getattr(yaml, loader))
    reading.nodes.cache_clear()
    value = parse(Path("f"), f"a: {text}\n")["a"]
    assert (type(value), value) == (type(SCALARS[text]), SCALARS[text])


def check_fit(document: Any, name: str) -> None:
    rules = {key: value for key, value in schema(name).items() if key != "$id"}
    assert Checks(rules).of(rules)(document) == Draft202012Validator(rules).is_valid(document)


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


def test_every_keyword_of_the_schemas_is_checked() -> None:
    """A keyword that is not known would fit anything."""
    known = {
        *LIMITS,
        *("type", "$ref", "properties", "additionalProperties", "propertyNames", "items", "oneOf", "anyOf", "if"),
    }
    notes = {"then", "else", "$schema", "$id", "$defs", "title", "description"}

    def keywords(rules: Any) -> set[str]:
        if not isinstance(rules, dict):
            return set()
        named = [each for name in ("properties", "$defs") for each in rules.get(name, {}).values()]
        lists = [each for name in ("oneOf", "anyOf") for each in rules.get(name, ())]
        single = [rules.get(name) for name in ("additionalProperties", "propertyNames", "items", "if", "then", "else")]
        return {*rules}.union(*map(keywords, [*named, *lists, *single]))

    assert {each for name in schema_names() for each in keywords(schema(name)) - known - notes} == set()


STYLES = (
    '{"kind": "kquota.quotas", "version": 1,\n "quotas": [\n  {"entity": {"user": "a"},\n   "values": {}},\n'
    '\t{"entity": {"user": "b"},\n\t "values": {"bad_key": 1}}]}\n',
    f"{HEAD}quotas:\n  # one\n  - entity: {{user: a}}\n    values: {{}}\n\n  - entity: {{user: b}}\n"
    "    values: {bad_key: 1}\n",
    f"{HEAD}quotas:\n- entity: !!map\n    user: a\n  values: {{}}\n- entity:\n    user: b\n  values:\n    bad_key: 1\n",
)


@pytest.mark.parametrize(("text", "lines"), [*zip(STYLES, ("3566", "5899", "479A"), strict=True)])
def test_places_have_lines_however_it_is_written(text: str, lines: str, tmp_path: Path) -> None:
    (tmp_path / "q").write_text(text)
    (first, second, values, bad) = (int(each, 16) for each in lines)
    places = (("quotas", 0), ("quotas", 1), ("quotas", 1, "values"), ("quotas", 1, "values", "bad_key"))
    found = [line_of(text, steps) for steps in places]
    assert found == [f", line {line}" for line in (first, second, values, bad)]
    assert entry_lines(tmp_path / "q", "quotas") == (first, second)
    with pytest.raises(InputError, match=rf"line {second}: quotas\[1\]: unknown quota key"):
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


def test_many_entities_in_yaml_have_a_hint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON is read several times as fast."""
    entries = "".join(f"- {{entity: {{user: u{n}}}, values: {{producer_byte_rate: 1MB}}}}\n" for n in range(10_001))
    (tmp_path / "q.yaml").write_text(f"{HEAD}quotas:\n{entries}")
    assert run(("lint", str(tmp_path / "q.yaml"))) == 0
    assert f"{tmp_path / 'q.yaml'}: 10,001 entities are read several times as fast from JSON" in capsys.readouterr().err


def test_what_a_shell_puts_in_the_place_of_a_file_is_read(tmp_path: Path) -> None:
    """A process substitution, and standard input by its names."""
    quotas = tmp_path / "q.json"
    quotas.write_text('{"kind":"kquota.quotas","version":1,"quotas":[]}')
    kquota = f"{sys.executable} -m kquota lint"
    script = f"{kquota} <(cat {quotas}) && cat {quotas} | {kquota} /dev/stdin && {kquota} - < {quotas}"

    done = ran(["bash", "-c", script])

    assert (done.returncode, done.stderr) == (0, "nothing found\n" * 3)


def test_a_file_without_an_end_is_left_soon(tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(b"x" * ((1 << 20) + 1))
    for path in (Path("/dev/zero"), large):
        with pytest.raises(InputError, match="is larger than 1 MiB"):
            read_bytes(path, 1 << 20)
    with pytest.raises(InputError, match="no name of a file"):
        read_bytes(Path("a\0b"))
