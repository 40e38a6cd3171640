"""Terraform's resource `kafka_quota` of the provider Mongey/kafka, in HCL.

Sources: kafka/resource_kafka_quota.go and docs/resources/quota.md of Mongey/terraform-provider-kafka: one user,
client-id or ip by name, or its default when there is no `entity_name`; values are floats.
"""

import hashlib
import re
import unicodedata

from kquota.core.quotas.entity import DEFAULT, Entity, EntityType
from kquota.core.quotas.quota import QuotaKey, Value, format_value, parse_value
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.documents.encoding import quoted
from kquota.documents.foreign import Exported, Found, Unread, as_double, divided
from kquota.errors import InputError

_HEAD = """\
# Client quotas for Terraform's provider Mongey/kafka. A resource without entity_name is the default entity.
# The provider changes a quota by deleting and creating it: in between there is none.
"""


def export(snapshot: QuotaSnapshot) -> Exported:
    """A resource for each entity; the addresses of resources stay the same as long as the names do."""
    quotas, unsaid = divided(snapshot, _no_resource, as_double)
    texts = [_HEAD]
    for entity, values in quotas.items():
        ((kind, name),) = entity.parts
        attributes = [] if name is DEFAULT else [f"  entity_name = {_string(name)}\n"]
        texts += [
            f'\nresource "kafka_quota" "{_address(entity)}" {{\n',
            *attributes,
            f'  entity_type = "{kind.value}"\n\n  config = {{\n',
            *(f'    "{key}" = {format_value(key, value)}\n' for key, value in values.items()),
            "  }\n}\n",
        ]
    return Exported("".join(texts), unsaid)


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


_TEXT = r'"(?:\\.|[^"\\\n])*"'
_COMMENT = re.compile(rf"({_TEXT})|(?:\#|//)[^\n]*|/\*.*?\*/", re.DOTALL)
_HEAD_OF = re.compile(r'^[ \t]*resource\s+"?(?P<type>\w*quota\w*)"?\s+"?[\w-]+"?\s*', re.MULTILINE)
_BODY = re.compile(rf'\{{((?:{_TEXT}|[^"{{}}]|\{{(?:{_TEXT}|[^"{{}}])*\}})*)\}}')
_CONFIG = re.compile(rf'\bconfig\s*=?\s*\{{((?:{_TEXT}|[^"}}])*)\}}')
_ATTRIBUTE = re.compile(rf'("[^"\n]*"|[\w-]+)[ \t]*[=:][ \t]*({_TEXT}|[^\s,{{}}"]*)([^\n,}}]*)')
_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})|\\U([0-9a-fA-F]{8})|\\(.)|([$%])[$%](?=\{)")
_KINDS = {kind.value: kind for kind in EntityType}


def read(name: str, text: str) -> QuotaSnapshot:
    """The quotas of `kafka_quota` resources whose names and values stand in the text.

    Resources with variables, and other providers' quotas, become problems. Raises InputError naming the line.
    """
    reading = Found()
    plain = _COMMENT.sub(lambda match: match[1] or "\n" * match[0].count("\n"), text)
    for head in _HEAD_OF.finditer(plain):
        body = _BODY.match(plain, head.end())
        with reading.at(f"{name}, line {plain.count(chr(10), 0, head.start()) + 1}"):
            if head["type"] != "kafka_quota" or body is None:
                raise Unread(f"{head['type']} is not read" if body else "the resource does not end")
            reading.add(*_resource(body[1]))
    understood = bool(reading.quotas) or text.startswith(_HEAD)
    return reading.snapshot(f"{name}: no resource of the type kafka_quota in it", understood=understood)


def _resource(body: str) -> tuple[Entity, dict[QuotaKey, Value]]:
    config = _CONFIG.search(body)
    outside = {key: value for key, value, rest in _ATTRIBUTE.findall(_CONFIG.sub("", body)) if not rest.strip()}
    if config is None or not {"for_each", "count"}.isdisjoint(re.findall(r"\w+", _CONFIG.sub("", body))):
        raise Unread("for_each, count and computed values are known to Terraform only")
    kind = _literal(outside.get("entity_type", ""))
    if kind not in _KINDS:
        raise InputError(f"entity_type {kind!r} is not one of {', '.join(_KINDS)}")
    named = re.search(r"\bentity_name\b", _CONFIG.sub("", body))
    name = _literal(outside.get("entity_name", "")) if named else DEFAULT
    entity = Entity.of({_KINDS[kind]: name})
    values = {}
    for key_text, raw, rest in _ATTRIBUTE.findall(config[1]):
        key = QuotaKey.parse(key_text.strip('"'))
        values[key] = parse_value(key, _literal(raw + rest.strip()))
    return entity, values


def _literal(raw: str) -> str:
    """A number's or a string's text, without templates."""
    if re.fullmatch(r"[-+.\w]*\d[-+.\w]*", raw) and re.match(r"[-+]?\d", raw):
        return raw
    if not re.fullmatch(_TEXT, raw) or re.search(r"(?<![$%\\])[$%]\{", raw):
        raise Unread(f"{raw or 'an expression'} is known to Terraform only, so the resource is left out")
    return _ESCAPE.sub(_unescaped, raw[1:-1])


def _unescaped(match: re.Match[str]) -> str:
    if match[4]:
        return match[4]
    code = match[1] or match[2]
    return chr(int(code, 16)) if code else {"n": "\n", "r": "\r", "t": "\t"}.get(match[3], match[3])
