"""Strimzi's KafkaUser resources, as far as `spec.quotas` goes.

Sources: the custom resource definition `kafkausers.kafka.strimzi.io` and `KafkaUserQuotas` of
strimzi/strimzi-kafka-operator: users by name only, integers of 32 bits but for the mutation rate.
"""

import hashlib
import re

from kquota.core.quotas.entity import DEFAULT, Entity
from kquota.core.quotas.quota import INT_MAX, QuotaKey, Value, check_value, format_value
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.documents.encoding import Document, parsed_documents, quoted
from kquota.documents.foreign import Exported, Found, Unread, as_double, divided, resources

_HEAD = """\
# Client quotas as Strimzi's KafkaUser resources (kafka.strimzi.io/v1; before Strimzi 0.49 it is v1beta2). Put the name
# of your Kafka resource in place of my-cluster.
# The User Operator takes a user over as a whole: it also removes ACLs and SCRAM credentials that the resource does not
# have. Where a KafkaUser is there already, copy spec.quotas into it.
"""
_KEYS = {
    QuotaKey.PRODUCER_BYTE_RATE: "producerByteRate",
    QuotaKey.CONSUMER_BYTE_RATE: "consumerByteRate",
    QuotaKey.REQUEST_PERCENTAGE: "requestPercentage",
    QuotaKey.CONTROLLER_MUTATION_RATE: "controllerMutationRate",
}
_RESOURCE_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*\Z")
"""What Kubernetes takes for a name: a DNS subdomain (RFC 1123)."""


def export(snapshot: QuotaSnapshot) -> Exported:
    """A YAML stream with a KafkaUser for each user."""
    quotas, unsaid = divided(snapshot, _no_user, _no_quota)
    texts = [_HEAD]
    users = {entity.user for entity in quotas}
    for entity, values in quotas.items():
        user = entity.user
        assert isinstance(user, str)
        resource, spec = _identity(user, taken=f"CN={user}" in users)
        texts += [
            f"---\napiVersion: kafka.strimzi.io/v1\nkind: KafkaUser\nmetadata:\n  name: {quoted(resource)}\n",
            f"  labels:\n    strimzi.io/cluster: my-cluster\nspec:\n{spec}  quotas:\n",
            *(f"    {_KEYS[key]}: {format_value(key, value)}\n" for key, value in values.items()),
        ]
    return Exported("".join(texts), unsaid)


def _identity(user: str, *, taken: bool) -> tuple[str, str]:
    """(name of the resource, what its spec says of the user).

    A user `CN=name` is one with a certificate: the operator puts the `CN=` in front itself. Where its resource has
    `taken` the name of a user without, that one gets another name.
    """
    common_name = user.removeprefix("CN=")
    if common_name != user and _is_resource_name(common_name):
        return common_name, "  authentication:\n    type: tls-external\n"
    if _is_resource_name(user) and not taken:
        return user, ""
    words = re.sub(r"[^a-z0-9]+", "-", user.lower())[:60].strip("-")
    digest = hashlib.sha256(user.encode()).hexdigest()[:8]
    return f"{words}-{digest}" if words else f"user-{digest}", f"  userName: {quoted(user)}\n"


def _is_resource_name(text: str) -> bool:
    return len(text) <= 253 and _RESOURCE_NAME.match(text) is not None


def _no_user(entity: Entity) -> str | None:
    if entity.user is None or entity.client_id is not None:
        return "a KafkaUser has quotas of the user only"
    if entity.user is DEFAULT:
        return "the default of users belongs in the Kafka resource: spec.kafka.quotas, type kafka"
    return None


def _no_quota(key: QuotaKey, value: Value) -> str | None:
    reason = as_double(key, value)
    if reason is None and key is not QuotaKey.CONTROLLER_MUTATION_RATE:
        if value != int(value):
            return f"{format_value(key, value)} is not a whole number, as Strimzi wants it"
        if value > INT_MAX:
            return f"{format_value(key, value)} is more than {INT_MAX}, the most that Strimzi takes"
    return reason


def read(name: str, text: str) -> QuotaSnapshot:
    """The quotas of KafkaUser resources: single ones, lists as kubectl prints them, or a stream of both.

    Resources of another kind become problems. Raises InputError naming the line.
    """
    reading, is_its_own = Found(), text.startswith(_HEAD)
    for document in parsed_documents(name, text):
        document.validate("strimzi")
        for steps, resource in resources(document.data):
            is_its_own |= "strimzi.io/" in str(resource.get("apiVersion"))
            with reading.at(document.place(steps)):
                if resource["kind"] != "KafkaUser":
                    raise Unread(f"{resource['kind']} is no KafkaUser")
                if not _is_resource_name(resource["metadata"]["name"]):
                    raise Unread(f"{resource['metadata']['name']} is no name of a resource, and may be a template's")
                spec = resource.get("spec") or {}
                given = spec.get("quotas") or {}
                values = {key: check_value(key, given[word]) for key, word in _KEYS.items() if word in given}
                reading.add(Entity(user=_user(resource["metadata"]["name"], spec)), values)
    return reading.snapshot(f"{name}: no resource of Strimzi in it", understood=is_its_own)


def _user(resource: str, spec: Document) -> str:
    """The inverse of `_identity`: who the operator sets the quotas for."""
    has_certificate = (spec.get("authentication") or {}).get("type") in ("tls", "tls-external")
    name: str = spec.get("userName", f"CN={resource}" if has_certificate else resource)
    return name
