"""Terraform's resource `kafka_quota` of the provider Mongey/kafka, in HCL.

Sources: kafka/resource_kafka_quota.go and docs/resources/quota.md of Mongey/terraform-provider-kafka: one user,
client-id or ip by name, or its default when there is no `entity_name`; values are floats.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata

from kquota.core.quotas.entity import DEFAULT, Entity
from kquota.core.quotas.quota import format_value
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.documents.encoding import quoted
from kquota.documents.foreign import Exported, as_double, divided

_HEAD = """\
# Client quotas for Terraform's provider Mongey/kafka. A resource without entity_name is the default entity.
# The provider changes a quota by deleting and creating it: in between there is none.
"""


def export(snapshot: QuotaSnapshot) -> Exported:
    """A resource for each entity; the addresses of resources stay the same as long as the names do."""
    said, unsaid = divided(snapshot, _no_resource, as_double)
    texts = [_HEAD]
    for entity, values in said.items():
        ((kind, name),) = entity.parts
        attributes = [] if name is DEFAULT else [f"  entity_name = {_string(name)}\n"]
        texts += [
            f'\nresource "kafka_quota" "{_address(entity)}" {{\n',
            *attributes,
            f'  entity_type = "{kind.value}"\n\n  config = {{\n',
            *(f'    "{key}" = {format_value(key, value)}\n' for key, value in values.items()),
            "  }\n}\n",
        ]
    return Exported("".join(texts), tuple(unsaid))


def _string(text: str) -> str:
    # ${ and %{ begin a template; Terraform looks for them before it reads escapes.
    return re.sub(r"(?<=[$%])\{", r"\\u007b", quoted(text))


def _address(entity: Entity) -> str:
    """A name for the resource: what of the entity's is allowed, and a digest where that is not all."""
    ((kind, name),) = entity.parts
    prefix = kind.value.replace("-", "_")
    if name is DEFAULT:
        return f"default_{prefix}"
    if re.fullmatch(r"[a-z0-9_-]{1,60}", name):
        return f"{prefix}_{name}"
    words = re.sub(r"[^a-z0-9]+", "_", name.lower())[:60].strip("_")
    return "_".join(filter(None, (prefix, words, hashlib.sha256(name.encode()).hexdigest()[:8])))


def _no_resource(entity: Entity) -> str | None:
    if len(entity.parts) > 1:
        return "kafka_quota has no pairs of user and client-id"
    ((_, name),) = entity.parts
    if name is not DEFAULT and not unicodedata.is_normalized("NFC", name):
        return "Terraform writes the name in another form of Unicode (NFC)"
    return None
