"""The broker's side of `kquota.backends.wire`: frames become requests, and responses frames."""

from kquota.backends.wire import APIS, ApiKey, FrameError, Request, RequestHeader, request_header, response_header
from kquota.backends.wire.messages import Response
from kquota.backends.wire.types import INT16, decode, decode_whole, encode, struct_of

_BY_KEY = {api.key: api for api in APIS}
_BY_RESPONSE = {api.response: api for api in APIS}
_KEY_AND_VERSION = struct_of(lambda *values: values, INT16, INT16)(0, False)


def decode_request(frame: bytes) -> tuple[RequestHeader, Request]:
    """Reads a request, as a broker does. Raises FrameError for anything but one whole message of a known version."""
    (key, version), _ = decode(_KEY_AND_VERSION, frame, 0)
    if key not in _BY_KEY:
        raise FrameError(f"unknown message {key}")
    api = _BY_KEY[ApiKey(key)]
    header, at = decode(request_header(api.is_flexible(version)), frame, 0)
    return header, decode_whole(api.codec(api.request, version), frame, at)


def encode_response(message: Response, version: int, correlation_id: int) -> bytes:
    """The frame of a response. Raises FrameError for what a frame cannot carry."""
    api = _BY_RESPONSE[type(message)]
    return encode(response_header(api, version), (correlation_id,), api.codec(type(message), version), message)
