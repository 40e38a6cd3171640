"""`kquota export` as a quotas file, and what a file keeps when it is brought to what a cluster has."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota import DEFAULT, Entity, InputError, QuotaKey, QuotaSnapshot
from kquota.core.change.plan import plan
from kquota.core.quotas.snapshot import Values
from kquota.documents.quotas import quotas_text, read_quota_file, read_quotas, writable
from kquota.documents.update import updated
from tests.core import strategies as few
from tests.documents.snapshots import snapshots
from tests.support.data import data_text

PRODUCER, CONSUMER, REQUEST = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE
MUTATION = QuotaKey.CONTROLLER_MUTATION_RATE
ALICE, BOB, CAROL = Entity(user="alice"), Entity(user="bob"), Entity(user="carol")


@given(snapshots())
def test_a_file_for_people_is_exact(snapshot: QuotaSnapshot) -> None:
    """In human units, whatever the names are."""
    text = quotas_text(snapshot)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "quotas.yaml"
        path.write_bytes(text.encode())

        assert read_quotas(path) == snapshot
        assert not plan(snapshot, read_quota_file(path).desired, prune=True)


def test_no_limit_is_a_word() -> None:
    """And not nineteen digits."""
    ip = Entity(ip="10.0.0.7")
    text = quotas_text(
        QuotaSnapshot({ALICE: {PRODUCER: 2**63 - 1}, ip: {QuotaKey.CONNECTION_CREATION_RATE: 2**31 - 1}})
    )
    assert "values: {producer_byte_rate: unlimited}" in text
    assert "values: {connection_creation_rate: unlimited}" in text


def test_what_a_file_cannot_say_is_named() -> None:
    snapshot = QuotaSnapshot({ALICE: {PRODUCER: 0, CONSUMER: 5}, BOB: {REQUEST: float("nan")}})
    said, unsaid = writable(snapshot)
    assert dict(said) == {ALICE: {CONSUMER: 5}}
    assert [problem.where for problem in unsaid] == ["user=alice: producer_byte_rate", "user=bob: request_percentage"]


FILE = data_text("documents/people.yaml")
NOW: dict[Entity, Values] = {
    ALICE: {PRODUCER: 10 << 20, REQUEST: 50.0},
    BOB: {CONSUMER: 2_000_000, PRODUCER: 1000},
    CAROL: {MUTATION: 3.0, PRODUCER: 1000},
}


def update(tmp_path: Path, text: str, now: dict[Entity, Values]) -> str:
    """The file brought to what the cluster has; a plan of it changes nothing then."""
    path = tmp_path / "quotas.yaml"
    path.write_bytes(text.encode())
    snapshot = QuotaSnapshot(now)
    result = updated(path, snapshot)
    path.write_bytes(result.text.encode())
    after = read_quota_file(path)
    assert not plan(snapshot, after.desired, prune=True, unmanaged=after.unmanaged)
    assert not updated(path, snapshot)
    return result.text


def test_what_is_right_is_left_alone(tmp_path: Path) -> None:
    assert update(tmp_path, FILE, {**NOW, Entity(user="operator-1"): {PRODUCER: 5}}) == FILE
    assert update(tmp_path, FILE.replace("\n", "\r\n"), NOW) == FILE.replace("\n", "\r\n")


@pytest.mark.parametrize(
    ("now", "old", "new"),
    [
        # A value that changed loses its variable; the others keep theirs.
        ({ALICE: {PRODUCER: 5 << 20, REQUEST: 50.0}}, '"${standard}"', "5 MiB/s"),
        ({ALICE: {PRODUCER: 10 << 20, REQUEST: 7.5}}, '"${percent}%"', "7.5 %"),
        ({ALICE: {PRODUCER: 10 << 20}}, ', request_percentage: "${percent}%"', ""),
        ({ALICE: {REQUEST: 50.0}}, 'producer_byte_rate: "${standard}", ', ""),
        ({ALICE: {**NOW[ALICE], CONSUMER: 1}}, '"${percent}%"}', '"${percent}%", consumer_byte_rate: 1 B/s}'),
        ({BOB: {CONSUMER: 3_000_000, PRODUCER: 1000}}, "2MB   #", "3 MB/s   #"),
        ({BOB: {CONSUMER: 2_000_000}}, "      producer_byte_rate: 1000  # slow\n", ""),
        (
            {BOB: {PRODUCER: 1000}},
            "      # for the nightly run\n      consumer_byte_rate: 2MB   # more than enough\n",
            "",
        ),
        ({BOB: {**NOW[BOB], REQUEST: 10.0}}, "1000  # slow\n", "1000  # slow\n      request_percentage: 10 %\n"),
        ({CAROL: {MUTATION: 2.5, PRODUCER: 1000}}, "controller_mutation_rate: 3", "controller_mutation_rate: 2.5"),
        # An entity goes with the comment right above it.
        ({BOB: {}}, FILE[FILE.index("  # Bob left") : FILE.index("  - entity: {user: carol}")], ""),
        ({ALICE: {}}, FILE[FILE.index("  # Alice pays") : FILE.index("  # Bob left")], ""),
        ({CAROL: {}}, FILE[FILE.index("  - entity: {user: carol}") : FILE.index("# the end")], ""),
        # A new one comes behind the last, apart as they are.
        (
            {
                Entity(user="dave", client_id=DEFAULT): {PRODUCER: 10_000_000},
                Entity(ip="10.0.0.1"): {QuotaKey.CONNECTION_CREATION_RATE: 5},
            },
            "producer_byte_rate: 1kB}\n",
            "producer_byte_rate: 1kB}\n\n  - entity: {user: dave, client-id: {default: true}}\n"
            '    values: {producer_byte_rate: 10 MB/s}\n\n  - entity: {ip: "10.0.0.1"}\n'
            "    values: {connection_creation_rate: 5}\n",
        ),
    ],
)
def test_a_change_touches_nothing_else(tmp_path: Path, now: dict[Entity, Values], old: str, new: str) -> None:
    assert FILE.count(old) == 1
    assert update(tmp_path, FILE, NOW | now) == FILE.replace(old, new)


def test_everything_goes_and_comes(tmp_path: Path) -> None:
    empty = update(tmp_path, FILE, {})
    assert empty.startswith(FILE[: FILE.index("quotas:\n  #")])
    assert "quotas: []" in empty
    assert read_quotas(tmp_path / "quotas.yaml") == QuotaSnapshot()
    again = update(tmp_path, empty, {ALICE: {PRODUCER: 1}})
    assert "quotas:\n  - entity: {user: alice}\n    values: {producer_byte_rate: 1 B/s}\n" in again


OVERLAYS = data_text("documents/overlays.yaml")


def test_overlays_stay(tmp_path: Path) -> None:
    """It is the base that changes, and clusters keep what is theirs."""
    now: dict[Entity, Values] = {ALICE: {PRODUCER: 10 << 20, REQUEST: 50.0}}
    old, new = "    values: {producer_byte_rate: 1000}\n", "    values: {}\n"
    assert update(tmp_path, OVERLAYS, now) == OVERLAYS.replace(old, new)


def test_what_was_not_asked_for_and_what_no_file_can_say_stays(tmp_path: Path) -> None:
    path = tmp_path / "quotas.yaml"
    path.write_text(FILE, encoding="utf-8")
    assert updated(path, QuotaSnapshot({ALICE: NOW[ALICE]}), asked=lambda entity: entity == ALICE).text == FILE
    change = updated(path, QuotaSnapshot({**NOW, BOB: {CONSUMER: 0, PRODUCER: 1000}}))
    assert (change.text, [problem.where for problem in change.unsaid]) == (FILE, ["user=bob: consumer_byte_rate"])


@pytest.mark.parametrize(
    "text",
    [
        '{"kind": "kquota.quotas", "version": 1, "quotas": ['
        '{"entity": {"user": "alice"}, "values": {"producer_byte_rate": 1}}]}',
        "{kind: kquota.quotas, version: 1, quotas: [{entity: {user: alice}, values: {producer_byte_rate: 1}}]}",
        "kind: kquota.quotas\nversion: 1\nquotas: # none\n-\n  entity: {user: alice}\n"
        "  values: {\n    producer_byte_rate: 1\n  }\n",
    ],
    ids=["json", "flow", "odd"],
)
@pytest.mark.parametrize(
    "now", [{}, {ALICE: {CONSUMER: 5}}, {ALICE: {PRODUCER: 2}, BOB: {PRODUCER: 3}, CAROL: {REQUEST: 5.0}}]
)
def test_any_way_of_writing_can_be_updated(tmp_path: Path, text: str, now: dict[Entity, Values]) -> None:
    update(tmp_path, text, now)


def test_no_comment_is_lost(tmp_path: Path) -> None:
    head = "kind: kquota.quotas\nversion: 1\nquotas:\n  - entity: {user: alice}\n"
    text = f"{head}    values: {{\n      producer_byte_rate: 1 # x\n    }}\n"
    with pytest.raises(InputError, match="cannot be updated as it is written"):
        update(tmp_path, text, {ALICE: {PRODUCER: 2}})


# --- Any file ------------------------------------------------------------------------------------------------------


@st.composite
def files(draw: st.DrawFn) -> str:
    """Files with comments, overlays, both styles and variables."""
    lines = ["# top", "kind: kquota.quotas", "version: 1", "variables: {v1: 1, v2: 2}"]
    lines += ["clusters: {prod: {variables: {v1: 3}}, dev: {}}"] if draw(st.booleans()) else []
    overlaid = len(lines) > 4
    lines += ["unmanaged:", "  - user: a"] if draw(st.booleans()) else []
    entities = draw(st.lists(few.few_entities, unique=True, max_size=5))
    lines.append("quotas: # here" if entities else "quotas: []")
    for number, entity in enumerate(entities):
        keys = [key.value for key in QuotaKey if key.allowed_for(entity)]
        raws = st.sampled_from(["1", "2", "3", '"${v1}"', '"${v2}"'])
        values = draw(st.dictionaries(st.sampled_from(keys), raws, max_size=3))
        lines += [""] if draw(st.booleans()) else []
        lines += [f"  # about {number}"] if draw(st.booleans()) else []
        parts = ", ".join(
            f"{kind.value}: {'{default: true}' if name is DEFAULT else name}" for kind, name in entity.parts
        )
        lines.append(f"  - entity: {{{parts}}}")
        lines += mapping("values", values, 4, draw(st.booleans()))
        if overlaid and draw(st.booleans()):
            overlay = draw(st.none() | st.dictionaries(st.sampled_from(keys), raws | st.just("null"), max_size=3))
            if overlay is None:
                lines.append("    clusters: {prod: null}")
            else:
                lines += ["    clusters:", *mapping("prod", overlay, 6, draw(st.booleans()))]
        lines += ["    labels: {owner: me}  # label"] if draw(st.booleans()) else []
    return "\n".join(lines) + draw(st.sampled_from(["", "\n", "\n# end\n"]))


def mapping(name: str, values: dict[str, str], indent: int, flow: bool) -> list[str]:
    blank = " " * indent
    if flow or not values:
        return [f"{blank}{name}: {{{', '.join(f'{key}: {raw}' for key, raw in values.items())}}}  # {name}"]
    return [f"{blank}{name}:", *(f"{blank}  {key}: {raw}  # {key}" for key, raw in values.items())]


def test_a_value_takes_the_place_of_another(tmp_path: Path) -> None:
    """With the blank line below the one that goes; the new one was to be written in there."""
    path = tmp_path / "quotas.yaml"
    head = "kind: kquota.quotas\nversion: 1\nquotas:\n  - entity: {user: b}\n    values:\n"
    path.write_text(f"{head}      consumer_byte_rate: 1\n\n  - entity: {{user: c}}\n    values: {{}}\n")
    text = updated(path, QuotaSnapshot({Entity("b"): {QuotaKey.PRODUCER_BYTE_RATE: 2}})).text
    assert text == f"{head}      producer_byte_rate: 2 B/s\n  - entity: {{user: c}}\n    values: {{}}\n"


@given(files(), few.snapshots)
def test_a_plan_of_an_updated_file_is_empty(text: str, snapshot: QuotaSnapshot) -> None:
    """And only what had to change did: labels, variables and the comments of others are there as before."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "quotas.yaml"
        path.write_bytes(text.encode())
        before = read_quota_file(path)

        result = updated(path, snapshot)
        path.write_bytes(result.text.encode())

        after = read_quota_file(path)
        assert not plan(snapshot, after.desired, prune=True, unmanaged=after.unmanaged), result.text
        assert result.text == text or result
    assert result.text.startswith(text[: text.index("quotas:")].removesuffix(" "))
    stay = {number for entity, number in before.entries.items() if entity not in result.removed}
    assert all(result.text.count(f"# about {number}\n") == text.count(f"# about {number}\n") for number in stay)
    if not result.removed:
        assert result.text.count("# label") == text.count("# label")
        assert result.text.count("# end") == text.count("# end")
