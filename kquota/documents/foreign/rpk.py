"""Redpanda's `rpk cluster quotas describe --format json|yaml` and `import` (schemas/rpk.schema.json).

Sources: src/go/rpk/pkg/cli/cluster/quotas of redpanda-data/redpanda. Its `describe` prints a default entity as the name
`<default>`, and its `import` takes that for a name: so defaults are not exported. Older versions call a value `values`,
as the documentation still does; both are read.
"""

from kquota.core.quotas.entity import DEFAULT, Entity, EntityType, Name
from kquota.core.quotas.quota import QuotaKey, Value, format_value, parse_value
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.documents.encoding import parsed_documents, quoted
from kquota.documents.foreign import Exported, Found, Unread, as_double, divided
from kquota.errors import InputError

_HEAD = """\
# Client quotas for: rpk cluster quotas import --from FILE
# It makes the cluster equal to this file: quotas that are not in it are deleted.
"""


def export(snapshot: QuotaSnapshot) -> Exported:
    """A YAML document for `rpk cluster quotas import`, which knows no default entities."""
    quotas, unsaid = divided(snapshot, _no_name, as_double)
    lines = []
    for entity, values in quotas.items():
        for number, (kind, name) in enumerate(entity.parts):
            assert isinstance(name, str)
            lines += ["  - entity:"] if number == 0 else []
            lines += [f"      - name: {quoted(name)}", f"        type: {kind.value}"]
        lines.append("    values:")
        for key, value in values.items():
            lines += [f"      - key: {key}", f'        value: "{format_value(key, value)}"']
    body = "\n".join(["quotas:", *lines]) if lines else "quotas: []"
    return Exported(f"{_HEAD}{body}\n", unsaid)


def _no_name(entity: Entity) -> str | None:
    if DEFAULT in entity:
        return "rpk import would read <default> as a name: 'rpk cluster quotas alter --default' sets it"
    if DEFAULT.value in entity:
        return "rpk's <default> cannot be told from the default entity"
    return None


def read(name: str, text: str) -> QuotaSnapshot:
    """The quotas of what `rpk cluster quotas describe` printed.

    Redpanda's own client-id prefixes, which Kafka has not, become problems. Raises InputError naming the line.
    """
    reading, documents = Found(), parsed_documents(name, text)
    for document in documents:
        document.validate("rpk")
        for number, entry in enumerate(document.data.get("quotas") or ()):
            with reading.at(document.place(("quotas", number))):
                reading.add(_entity(entry["entity"]), dict(map(_value, entry["values"])))
    return reading.snapshot(f"{name}: no document in it", understood=bool(documents))


def _entity(parts: list[dict[str, str]]) -> Entity:
    names: dict[EntityType, Name] = {}
    for part in parts:
        try:
            kind = EntityType(part["type"])
        except ValueError:
            raise Unread(f"Kafka has no quotas by {part['type']}") from None
        names[kind] = DEFAULT if part["name"] == DEFAULT.value else part["name"]
    if len(names) < len(parts):
        raise InputError("an entity type is given twice")
    return Entity.of(names)


def _value(pair: dict[str, str]) -> tuple[QuotaKey, Value]:
    key = QuotaKey.parse(pair["key"])
    return key, parse_value(key, str(pair["value"] if "value" in pair else pair["values"]))
