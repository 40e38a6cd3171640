"""Jikkou's resources of the kind KafkaClientQuota (schemas/jikkou.schema.json).

Sources: `KafkaClientQuotaType`, `KafkaClientQuotaConfigs` and the user guide of streamthoughts/jikkou. It knows six of
Kafka's ten kinds of entities and three of the five keys; its controller deletes nothing that a file does not name.
"""

import re
from typing import Any

from kquota.core.quotas.entity import DEFAULT, Entity
from kquota.core.quotas.quota import QuotaKey, Value, check_value, format_value
from kquota.core.quotas.snapshot import Problem, QuotaSnapshot
from kquota.documents.encoding import Document, parsed_documents, quoted
from kquota.documents.foreign import Exported, Found, Unread, as_double, divided, resources
from kquota.errors import InputError

_API = "kafka.jikkou.io/"
_KIND, _LIST = "KafkaClientQuota", "KafkaClientQuotaList"
_KEYS = {
    QuotaKey.PRODUCER_BYTE_RATE: "producerByteRate",
    QuotaKey.CONSUMER_BYTE_RATE: "consumerByteRate",
    QuotaKey.REQUEST_PERCENTAGE: "requestPercentage",
}
_NAMED, _DEFAULT, _NONE = "named", "default", "none"
_TYPES = {
    (_DEFAULT, _NONE): "USERS_DEFAULT",
    (_NAMED, _NONE): "USER",
    (_NAMED, _NAMED): "USER_CLIENT",
    (_NAMED, _DEFAULT): "USER_ALL_CLIENTS",
    (_NONE, _NAMED): "CLIENT",
    (_NONE, _DEFAULT): "CLIENTS_DEFAULT",
}
"""The type of an entity, by what is there of the user and of the client-id."""
_SHAPES = {name: shape for shape, name in _TYPES.items()}


_HEAD = "# Client quotas for: jikkou apply --files FILE\n"
_DEFAULTS = """\
# Jikkou 0.34 gets and does not create quotas of defaults: it ends with a NullPointerException, before any change.
"""


def export(snapshot: QuotaSnapshot) -> Exported:
    """A YAML stream with a resource for each entity, for `jikkou apply --files FILE`."""
    quotas, unsaid = divided(snapshot, _no_type, _no_key)
    texts = [_HEAD + (_DEFAULTS if any(DEFAULT in entity for entity in quotas) else "")]
    for entity, values in quotas.items():
        names = [
            f"    {part}: {quoted(name)}\n"
            for part, name in (("user", entity.user), ("clientId", entity.client_id))
            if isinstance(name, str)
        ]
        texts += [
            f"---\napiVersion: {_API}v1beta2\nkind: {_KIND}\nspec:\n  type: {_type(entity)}\n",
            "  entity:\n" + "".join(names) if names else "  entity: {}\n",
            "  configs:\n"
            + "".join(f"    {_KEYS[key]}: {format_value(key, value)}\n" for key, value in values.items()),
        ]
    return Exported("".join(texts), unsaid)


# Jikkou puts every file through Jinja, and every resource that it has read once more: no escape outlives both.
_JINJA = re.compile(r"\{[{%#]")


def _type(entity: Entity) -> str | None:
    def shape(name: object) -> str:
        return _NONE if name is None else _DEFAULT if name is DEFAULT else _NAMED

    return None if entity.ip is not None else _TYPES.get((shape(entity.user), shape(entity.client_id)))


def _no_type(entity: Entity) -> str | None:
    if any(isinstance(name, str) and _JINJA.search(name) for _, name in entity.parts):
        return "Jikkou reads its files as templates, and would read the name as a part of one"
    return "Jikkou has no type of quota for it" if _type(entity) is None else None


def _no_key(key: QuotaKey, value: Value) -> str | None:
    return as_double(key, value) if key in _KEYS else "Jikkou does not know this key"


def read(name: str, text: str) -> QuotaSnapshot:
    """The quotas of Jikkou's resources: single ones, lists, or a stream of both.

    Resources of another kind, and resources that are marked for deletion, become problems. Raises InputError naming the
    line.
    """
    reading, documents = Found(), parsed_documents(name, text)
    for document in documents:
        kind = document.data.get("kind")
        if kind not in (_KIND, _LIST) and isinstance(kind, str):
            reading.problems.append(Problem(document.place(()), f"{kind} is no quota"))
            continue
        document.validate("jikkou")
        for steps, resource in resources(document.data):
            with reading.at(document.place(steps)):
                annotations = (resource.get("metadata") or {}).get("annotations") or {}
                if str(annotations.get("jikkou.io/delete", "")).lower() == "true":
                    raise Unread("marked for deletion")
                reading.add(*_quota(resource["spec"]))
    its_own = any("jikkou.io/" in str(document.data.get("apiVersion")) for document in documents)
    return reading.snapshot(f"{name}: no resource of Jikkou in it", understood=its_own or text.startswith(_HEAD))


def _quota(spec: Document) -> tuple[Entity, dict[QuotaKey, Value]]:
    given = spec.get("entity") or {}

    def name(part: str, shape: str) -> Any:
        if shape != _NAMED:
            return DEFAULT if shape == _DEFAULT else None
        if not given.get(part):
            raise InputError(f"spec.type {spec['type']} needs spec.entity.{part}")
        return given[part]

    user, client = _SHAPES[spec["type"]]
    entity = Entity(user=name("user", user), client_id=name("clientId", client))
    configs = spec.get("configs") or {}
    numbers = {key: configs.get(written) for key, written in _KEYS.items()}
    return entity, {key: check_value(key, number) for key, number in numbers.items() if number is not None}
