"""The codec against kafka-python's messages, byte for byte, and against frames that are not what they should be."""

import contextlib
import math
import warnings
from functools import cache
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.backends import wire
from kquota.backends.wire.messages import FIELDS
from tests.support.wire import decode_request, encode_response

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas by a function on its way out
    from kafka.protocol import admin, consumer, metadata, producer, sasl

Message: TypeAlias = wire.Request | wire.Response

REQUESTS = {api.request for api in wire.APIS}
API_OF = {kind: api for api in wire.APIS for kind in (api.request, api.response)}

# --- Any message -----------------------------------------------------------------------------------------------------

ids = st.integers(-(2**31), 2**31 - 1)
# 127 and 128 are where a varint grows.
texts = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=20),
    st.sampled_from(["user", "client-id", "ip", "", "<default>", "x" * 126, "x" * 127, "x" * 300, "日本😀"]),
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    **{f"int{bits}": st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)},
    "float64": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "string": texts,
    "bytes": st.binary(max_size=200),
}


def values_of(kind: str) -> st.SearchStrategy[Any]:
    """Values of a type of the table."""
    if kind.endswith("?"):
        return st.none() | values_of(kind[:-1])
    if kind.startswith("[]"):
        return st.lists(values_of(kind[2:]), max_size=3)
    return VALUES[kind] if kind in VALUES else structs_of(kind)


@cache
def structs_of(name: str) -> st.SearchStrategy[Message]:
    return st.builds(wire.MESSAGES[name], *(values_of(kind) for _, kind, _ in FIELDS[name]))


def in_version(value: Any, version: int) -> Any:
    """The value without the fields that the version does not have."""
    if isinstance(value, list):
        return [in_version(each, version) for each in value]
    if not isinstance(value, tuple):
        return value
    kind: Any = type(value)
    later = {label: kind._field_defaults.get(label) for label, _, since in FIELDS[kind.__name__] if since > version}
    return kind._make(in_version(each, version) for each in value)._replace(**later)


@st.composite
def versioned(draw: st.DrawFn) -> tuple[Message, int]:
    """A message in one of its versions."""
    api = draw(st.sampled_from(wire.APIS))
    version = draw(st.integers(api.min_version, api.max_version))
    message = draw(structs_of(draw(st.sampled_from([api.request, api.response])).__name__))
    if isinstance(message, wire.ApiVersionsResponse) and message.error_code == wire.UNSUPPORTED_VERSION:
        message = message._replace(error_code=0)
    if isinstance(message, wire.DescribeClusterResponse):  # a set of names there, by default unknown as well
        message = message._replace(cluster_authorized_operations=-(2**31))
    return in_version(message, version), version


def encode(message: Any, version: int, correlation_id: int, client_id: str | None = "kquota") -> bytes:
    if type(message) in REQUESTS:
        return wire.encode_request(message, version, correlation_id, client_id)
    return encode_response(message, version, correlation_id)


def decode(kind: Any, version: int, frame: bytes) -> Any:
    if kind in REQUESTS:
        return decode_request(frame)[1]
    return wire.decode_response(kind, version, frame)[1]


def theirs(message: Any, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """The frame that kafka-python makes."""
    name = type(message).__name__
    reference = next(
        getattr(module, name) for module in (admin, consumer, metadata, producer, sasl) if hasattr(module, name)
    )
    other = reference[version](**_theirs(reference._struct, message, version))
    other.with_header(*([correlation_id, client_id] if type(message) in REQUESTS else [correlation_id]))
    frame: bytes = other.encode(header=True)
    return frame


def _theirs(struct: Any, message: Any, version: int) -> dict[str, Any]:
    """The fields of a struct of theirs, which has ours in the same order."""
    ours = [label for label, _, since in FIELDS[type(message).__name__] if since <= version]
    fields = {}
    for label, field in zip(ours, struct.untagged_fields(version), strict=False):
        value = getattr(message, label)
        if field.is_struct_array() and value is not None:
            value = [
                field.data_class(version=version, **_theirs(field, each, version))
                if isinstance(each, tuple)
                else field.data_class(version=version, **{field.untagged_fields(version)[0].name: each})
                for each in value
            ]
        if label != "cluster_authorized_operations":
            fields[field.name] = value
    return fields


@given(versioned(), ids, st.sampled_from([None, "", "kquota", "x" * 300]))
def test_bytes_are_those_of_kafka_python(case: tuple[Message, int], correlation_id: int, client_id: str | None) -> None:
    message, version = case
    assert encode(message, version, correlation_id, client_id) == theirs(message, version, correlation_id, client_id)


@given(versioned(), ids, st.sampled_from([None, "", "kquota", "x" * 300]))
def test_what_is_encoded_can_be_decoded(case: tuple[Any, int], correlation_id: int, client_id: str | None) -> None:
    message, version = case
    frame = encode(message, version, correlation_id, client_id)
    if type(message) in REQUESTS:
        header, decoded = decode_request(frame)
        assert header == (API_OF[type(message)].key, version, correlation_id, client_id)
        assert decoded == message
    else:
        assert wire.decode_response(type(message), version, frame) == (correlation_id, message)


@given(versioned(), ids)
def test_every_truncation_is_a_frame_error(case: tuple[Message, int], correlation_id: int) -> None:
    message, version = case
    frame = encode(message, version, correlation_id)
    for end in range(len(frame)):
        with pytest.raises(wire.FrameError):
            decode(type(message), version, frame[:end])
    with pytest.raises(wire.FrameError):
        decode(type(message), version, frame + b"\0")


@given(st.binary(max_size=60), st.sampled_from(wire.APIS), st.integers(0, 4))
def test_bytes_from_anywhere_are_a_message_or_a_frame_error(frame: bytes, api: wire.Api, version: int) -> None:
    for action in (lambda: wire.decode_response(api.response, version, frame), lambda: decode_request(frame)):
        with contextlib.suppress(wire.FrameError):
            action()


# --- Frames ----------------------------------------------------------------------------------------------------------

NAMED = [wire.EntityData("user", "ü"), wire.EntityData("client-id", None)]
DESCRIBE = wire.DescribeClientQuotasRequest([wire.ComponentData("user", wire.MATCH_DEFAULT, None)], True)
CHANGES = [wire.OpData("k", 1.5, False), wire.OpData("l", 0.0, True)]
ALTER = wire.AlterClientQuotasRequest([wire.AlterEntry(NAMED, CHANGES)], True)
ALTERED = wire.AlterClientQuotasResponse(0, [wire.AlterEntryResult(0, None, NAMED[1:])])
# (message, version, correlation id, frame); the request's client-id is "kq".
FRAMES: tuple[tuple[Any, int, int, str], ...] = (
    (wire.ApiVersionsRequest(), 0, 1, "0012 0000 00000001 0002 6b71"),
    (wire.ApiVersionsRequest("kq", "0.1"), 3, 1, "0012 0003 00000001 0002 6b71 00  03 6b71 04 302e31 00"),
    (wire.SaslHandshakeRequest("PLAIN"), 1, 2, "0011 0001 00000002 0002 6b71  0005 504c41494e"),
    (wire.SaslAuthenticateRequest(b"\0a\0b"), 1, 3, "0024 0001 00000003 0002 6b71  00000004 00610062"),
    (wire.SaslAuthenticateRequest(b"\0a\0b"), 2, 3, "0024 0002 00000003 0002 6b71 00  05 00610062 00"),
    (DESCRIBE, 0, 4, "0030 0000 00000004 0002 6b71  00000001 0004 75736572 01 ffff 01"),
    (DESCRIBE, 1, 4, "0030 0001 00000004 0002 6b71 00  02 05 75736572 01 00 00 01 00"),
    (
        wire.DescribeClientQuotasRequest([wire.ComponentData("ip", wire.MATCH_EXACT, "::1")], False),
        1,
        5,
        "0030 0001 00000005 0002 6b71 00  02 03 6970 00 04 3a3a31 00 00 00",
    ),
    (
        ALTER,
        0,
        6,
        "0031 0000 00000006 0002 6b71  00000001"
        " 00000002 0004 75736572 0002 c3bc 0009 636c69656e742d6964 ffff"
        " 00000002 0001 6b 3ff8000000000000 00 0001 6c 0000000000000000 01  01",
    ),
    (
        ALTER,
        1,
        6,
        "0031 0001 00000006 0002 6b71 00  02"
        " 03 05 75736572 03 c3bc 00 0a 636c69656e742d6964 00 00"
        " 03 02 6b 3ff8000000000000 00 00 02 6c 0000000000000000 01 00 00  01 00",
    ),
    (wire.ApiVersionsResponse(0, [wire.ApiVersion(48, 0, 1)]), 0, 1, "00000001  0000 00000001 0030 0000 0001"),
    # Flexible, and still without tags in the header.
    (
        wire.ApiVersionsResponse(0, [wire.ApiVersion(48, 0, 1)], 9),
        3,
        1,
        "00000001  0000 02 0030 0000 0001 00 00000009 00",
    ),
    (wire.SaslHandshakeResponse(33, ["PLAIN"]), 1, 2, "00000002  0021 00000001 0005 504c41494e"),
    (wire.SaslAuthenticateResponse(58, "no", b"", 0), 0, 3, "00000003  003a 0002 6e6f 00000000"),
    (wire.SaslAuthenticateResponse(0, None, b"v=", 7), 2, 3, "00000003 00  0000 00 03 763d 0000000000000007 00"),
    (wire.DescribeClientQuotasResponse(0, 42, "no", None), 0, 4, "00000004  00000000 002a 0002 6e6f ffffffff"),
    (wire.DescribeClientQuotasResponse(0, 42, "no", None), 1, 4, "00000004 00  00000000 002a 03 6e6f 00 00"),
    (
        wire.DescribeClientQuotasResponse(3, 0, "", [wire.QuotaEntry(NAMED[:1], [wire.ValueData("k", math.inf)])]),
        1,
        4,
        "00000004 00  00000003 0000 01  02 02 05 75736572 03 c3bc 00 02 02 6b 7ff0000000000000 00 00 00",
    ),
    (ALTERED, 0, 6, "00000006  00000000 00000001 0000 ffff 00000001 0009 636c69656e742d6964 ffff"),
    (ALTERED, 1, 6, "00000006 00  00000000 02 0000 00 02 0a 636c69656e742d6964 00 00 00 00"),
)


@pytest.mark.parametrize(("message", "version", "correlation_id", "frame"), FRAMES)
def test_frames(message: Any, version: int, correlation_id: int, frame: str) -> None:
    data = bytes.fromhex(frame)
    assert encode(message, version, correlation_id, "kq").hex(" ") == data.hex(" ")
    assert theirs(message, version, correlation_id, "kq") == data
    assert decode(type(message), version, data) == message
    for end in range(len(data)):
        with pytest.raises(wire.FrameError):
            decode(type(message), version, data[:end])


def test_tagged_fields_are_read_past() -> None:
    """In the header, in an element and at the end; the last one with a number and a size of several bytes."""
    frame = bytes.fromhex(
        "00000004 01 00 02 ffff  00000000 0000 01  02 02 05 75736572 00 01 05 00 01 00  02 00 01 aa 8101 8101"
    )
    frame += b"x" * 129
    _, message = wire.decode_response(wire.DescribeClientQuotasResponse, 1, frame)
    assert message == wire.DescribeClientQuotasResponse(
        0, 0, "", [wire.QuotaEntry([wire.EntityData("user", None)], [])]
    )
    with pytest.raises(wire.FrameError):
        wire.decode_response(wire.DescribeClientQuotasResponse, 1, frame[:-1])


def test_features_of_newer_brokers_are_read_past() -> None:
    """As a 4.x broker answers ApiVersions v3."""
    other = metadata.ApiVersionsResponse[3](
        error_code=0,
        api_keys=[metadata.ApiVersionsResponse.ApiVersion(api_key=48, min_version=0, max_version=1)],
        throttle_time_ms=0,
        supported_features=[
            metadata.ApiVersionsResponse.SupportedFeatureKey(name="metadata.version", min_version=1, max_version=25)
        ],
        finalized_features_epoch=12,
    )
    other.with_header(1)
    expected = wire.ApiVersionsResponse(0, [wire.ApiVersion(48, 0, 1)])
    assert wire.decode_response(wire.ApiVersionsResponse, 3, other.encode(header=True)) == (1, expected)


@pytest.mark.parametrize("known", [[], [wire.ApiVersion(18, 0, 2)]])
@pytest.mark.parametrize("asked", [1, 2, 3])
def test_an_older_broker_says_so_in_version_0(known: list[wire.ApiVersion], asked: int) -> None:
    answer = wire.ApiVersionsResponse(wire.UNSUPPORTED_VERSION, known)
    frame = encode_response(answer, 0, 7)
    assert wire.decode_response(wire.ApiVersionsResponse, asked, frame) == (7, answer)


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        ("00000004  00000000 0000 fffe ffffffff", "a text of length -2"),
        ("00000004  00000000 0000 0001 ff ffffffff", "not UTF-8"),
        ("00000004  00000000 0000 ffff 7fffffff", "ends in the middle"),
        ("00000004  00000000 0000 ffff fffffffe", "a list of length -2"),
        ("00000004  00000000 0000 ffff 00000001 ffffffff", "a list of length -1"),
        ("00000004  00000000 0000 ffff 00000001 00000001 ffff", "a text of length -1"),
    ],
)
def test_malformed_frames(frame: str, says: str) -> None:
    with pytest.raises(wire.FrameError, match=says):
        wire.decode_response(wire.DescribeClientQuotasResponse, 0, bytes.fromhex(frame))


def test_an_endless_varint() -> None:
    with pytest.raises(wire.FrameError, match="more than five bytes"):
        wire.decode_response(wire.DescribeClientQuotasResponse, 1, bytes.fromhex("00000004 ffffffffffff01"))


@pytest.mark.parametrize(
    ("frame", "says"),
    [("0004 0000 00000001 ffff", "unknown message 4"), ("0030 0002 00000001 ffff 00", "no version 2")],
)
def test_requests_that_are_none_of_ours(frame: str, says: str) -> None:
    with pytest.raises(wire.FrameError, match=says):
        decode_request(bytes.fromhex(frame))


@pytest.mark.parametrize("name", ["x" * 32_768, "ü" * 16_384, "\ud800"])
@pytest.mark.parametrize("version", [0, 1])
def test_what_no_frame_can_carry(name: str, version: int) -> None:
    request = wire.DescribeClientQuotasRequest([wire.ComponentData("user", wire.MATCH_EXACT, name)], False)
    with pytest.raises(wire.FrameError):
        wire.encode_request(request, version, 1, None)


def test_null_where_there_must_be_a_value() -> None:
    broken: Any = wire.AlterClientQuotasResponse(0, None)
    for message in (broken, wire.SaslHandshakeResponse(0, [None])):
        with pytest.raises(wire.FrameError, match="null"):
            encode_response(message, 0, 1)
