"""What collectors and viewers wrap around a line of the request log, undone by one rule.

Find the request, undo as many levels of JSON, CSV, logfmt or shell quoting as surround it, and take the nearest time.
No member is known by its name: any text that holds a request is the message, and any member that is a time is one.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import tzinfo
from html import unescape
from itertools import chain
from typing import Any, Final, NamedTuple

from kquota.audit.sources.moments import MILLIS, STAMP, LogZone, apart_ms, epoch_ms, in_zone_of, last_moment, moment_of
from kquota.audit.sources.origins import NO_SIGNS, origin_in, origin_of

START: Final = '{"isForwarded"'
COMPLETED: Final = "Completed request:"
MARK: Final = "|".join(
    ["Completed request:", "isForwarded", r"requestHeader\."]
    + [r",\s*".join(map(str, word)) for word in (b"Completed request:", b"isForwarded")]
)
"""What shows a request, also in a list of bytes."""
_MARK: Final = re.compile(MARK)
_MEMBER: Final = re.compile(r'\{\s*"[^"]*"\s*:')
_OLD: Final = re.compile(r"\w*\(|\{api_key=")
_TAIL: Final = re.compile(r" from connection \S+;totalTime:")
"""The beginning and the end of the text form."""
_OPENING: Final = re.compile(r'[\[{]|(?:(?<![\w"\\])|(?<=\bb))"')
_DECODE: Final = json.JSONDecoder().raw_decode
_PRINTED: Final = re.compile(r"\s*[\[\]{}]+,?\s*")
"""A line of JSON that is printed over several lines."""
_SHELL_QUOTE: Final = "'\\''"
"""An apostrophe between apostrophes, as shells have it, and no JSON does."""
_APOSTROPHES: Final = re.compile(r"(?<![\w'])'((?:[^']|'')*)'(?![\w'])")
"""A text between apostrophes, as YAML and SQL double those that are in it."""
_ELEMENT: Final = re.compile(r">[^<>]*Completed request:[^<]*</")
"""The text of an element of XML or HTML; of CDATA nothing is escaped."""
_INSTANT: Final = re.compile(r'<Instant epochSecond="([0-9]+)" nanoOfSecond="([0-9]+)"/>')
"""The time in log4j2's layout of XML."""
_PAGE: Final = re.compile(r"\{&(?:amp;)*(?:quot|#34|#x22);")
_COLOUR: Final = re.compile(r"(?:\x1b|\\+(?:x|u00)1b)\[[0-9;]*[A-Za-z]")
"""A terminal's colour, which may be quoted."""
_ESCAPES: Final = re.compile(r"((?:\\u[0-9a-fA-F]{4})+)|((?:\\x[0-9a-fA-F]{2})+)|\\(.)", re.DOTALL)
_FIELD: Final = re.compile(r'(?<![\w"\\])"([^"]*+(?:""[^"]*+)*+)(?:"(?![\w"])|\n?\Z)')
"""A field of CSV; one with the end of a line in it goes on in the next."""
_MEANT: Final = {letter: letter for letter in "\\'\"/=]$`N"} | {"n": "\n", "r": "\r", "t": "\t", "0": "\0"}
"""What a backslash and a letter mean, where a backslash does."""
_BACKSLASHES: Final = re.compile(r"(?<!\t)\\+(?=(u[0-9a-fA-F]{4}|U000[0-9a-fA-F]|x[0-9a-fA-F]{2}|.?))")
_DELIMITED: Final = re.compile(r"[\t'\"=]")
"""What delimits a field in which backslashes may have been added."""
_MEANING: Final = re.compile(r"\\|''|</|\{&|1b\[")
"""What may mean more than it is, in a message."""
_CONTROLS: Final = re.compile(r"[\0-\x1f]")
_LEVELS: Final = 8
"""How many levels of quoting are undone; people's logs have three at most."""
_TRIES: Final = 64
"""How many opening brackets and quotes before a request are tried."""
_TIMED: Final = re.compile(r"time|date|epoch|stamp|\bts\b", re.IGNORECASE)
_A_TIME: Final = re.compile(
    r"\W*_*(?:date|ts|instant|(?:event)?_?time(?:_?(?:stamp|unix|nano|millis|ms))*)", re.IGNORECASE
)
_BEGINNING: Final = re.compile("start|creat|boot|launch|deploy", re.IGNORECASE)
"""Names of members with the time when a process, a container or a stream began."""
_DAY_MS: Final = 86_400_000
NOT_A_LINE: Final = "not a line of a request log"
CUT_OFF: Final = "a request that is cut off, at the end of a file or by a collector's limit of a line"
SEVERAL_LINES: Final = "the request is printed over several lines: `jq -c .` writes each into one"
SEVERAL_REQUESTS: Final = "several requests in one line: `jq -c .`, or `jq -c '.[]'` of a list, writes each into one"
TOO_LONG: Final = (
    "a line of more than 16 MiB, whose rest is not read: `jq -c '.[]'` of a list writes each request into one"
)
_SEVERAL_MEANINGS: Final = "a collector may have added backslashes or quotes to names: export the lines as JSON"
LEFT_OUT: Final = re.compile(r'MESSAGE[\\"]*\s*:\s*(?:null|\[(?![\s0-9,]*\]))|\[[0-9.]+[KMG]?B? blob data\]')
"""What journalctl writes in place of a message; and how it begins a list of bytes, which may be cut off."""
_JOURNAL: Final = "journalctl left the message out: `journalctl -o cat` writes it"

_CRI: Final = re.compile(r"\S+ (stdout|stderr) ([PF]) ")
"""The beginning of a line of containerd's: P for a piece that goes on in the next line of its stream."""
_DOCKER: Final = '{"log":"'
_PIECE: Final = 16 << 10
"""How long the pieces are that Docker cuts lines into."""
_LONGEST: Final = 16 << 20


class Pieces:
    """Puts lines together again that the runtime of a container cut into pieces."""

    def __init__(self) -> None:
        self.heading: Mapping[str, str] = NO_SIGNS
        """The signs in lines that are no requests."""
        self._begun: dict[str, str] = {}

    def whole(self, line: str) -> str | None:
        """The line with the pieces before it; None for a piece that goes on."""
        stream, text, goes_on = "", line, False
        if (cri := _CRI.match(line)) is not None:
            stream, goes_on = cri[1], cri[2] == "P"
            if begun := self._begun.pop(stream, ""):
                text = begun + line[cri.end() :]
        elif line.startswith(_DOCKER):
            content, _, rest = line[len(_DOCKER) :].partition('","stream":"')
            stream, goes_on = rest.partition('"')[0], len(content) >= _PIECE and not content.endswith("\\n")
            if begun := self._begun.pop(stream, ""):
                text = begun + line[len(_DOCKER) :]
        if not goes_on or len(text) > _LONGEST:
            return text
        self._begun[stream] = text.rstrip("\r\n") if cri is not None else text.partition('","stream":"')[0]
        return None

    def left(self) -> list[str]:
        """The beginnings of lines whose ends did not come; it forgets them."""
        begun, self._begun = self._begun, {}
        return [*begun.values()]


class Request(NamedTuple):
    """A request as the broker logged it, without its envelopes."""

    fields: Mapping[str, Any] | None
    """The JSON object; None of the text form."""
    text: str
    """Of the text form, what stands behind `Completed request:`."""
    moment: float | None
    """Its time, epoch ms."""
    origin: Mapping[str, str] = NO_SIGNS
    """The signs of where its line is from (`origins`)."""


class _Time(NamedTuple):
    """A time that stands around a request."""

    moment: float
    zoned: bool
    digits: int = 0
    """Of a text without a unit."""


def parted(line: str) -> list[str]:
    """The line; or where it has several requests in JSON, a line of each, with all that stands around it."""
    if max(line.count("isForwarded"), line.count(COMPLETED)) < 2:
        return [line]
    if "\r" in line.rstrip():  # it ends lines, and is never within JSON
        return [part for piece in line.split("\r") for part in parted(piece)]
    parts: list[str] = []
    at = behind = tries = 0
    head, is_cut = "", False
    while (opening := _OPENING.search(line, at)) is not None and tries < _TRIES:
        try:
            value, end = _DECODE(line, opening.start())
            if line.startswith('"', end):
                raise ValueError("CSV, whose quotes are there twice")
        except ValueError:
            at, tries = opening.end(), tries + 1
            continue
        at = end
        between, is_held = line[behind : opening.start()], _holds(value)
        is_between = _MARK.search(between) is not None
        if is_between and is_held:
            return [line]  # a request that is cut off
        if is_between or (opening[0] == '"' and not is_held):
            continue
        is_cut = is_cut or _MEMBER.search(between) is not None
        # Nobody knows what else an object would tell that is cut off: its beginning stays with each of its parts.
        head = head + between if is_cut or not parts else ""
        behind = end
        parts += [head + json.dumps(part, ensure_ascii=False) for part in _parts(value) if _holds(part)]
    if is_cut or _MARK.search(line, behind):
        parts.append(line[behind:])
    return [line] if len(parts) < 2 else parts


def _parts(value: Any) -> Iterator[Any]:
    """A JSON value, once for each request of a list in it."""
    if isinstance(value, str):
        yield from filter(_holds, value.split("\n")) if COMPLETED in value else [value]
        return
    held = {name: [*_parts(member)] for name, member in _named(value) if _holds(member)}
    if isinstance(value, list) and len(held) > 1:
        yield from chain.from_iterable(held.values())
    elif max(map(len, held.values()), default=0) < 2:
        yield value
    else:
        others = {name: member for name, member in _named(value) if name not in held}
        for name, part in ((name, part) for name, parts in held.items() for part in parts):
            yield [part, *others.values()] if isinstance(value, list) else others | {name: part}


class OtherZone(Exception):
    """The time of a message may be in another zone than the time of its collector."""


def message_in(data: bytes, zone: LogZone) -> str | None:
    """The message in the one object of JSON that a line is, where `unwrap` takes all but the origin from it alone.

    None for whatever is unusual: then only `unwrap` knows. Raises OtherZone.
    """
    if not (data.startswith(b"{") and data.count(b"isForwarded") == data.count(b"Completed request:") == 1):
        return None
    try:
        value: Any = json.loads(data)
        outer = None
        while isinstance(value, dict):
            outer = _time_of(value, zone) or outer
            (value,) = filter(_holds, value.values())
        message = str(value).rstrip("\r\n") if isinstance(value, str) and b'\\"' in data else ""
        start = message.find(START)
        time = last_moment(message, start, zone) if start >= 0 else None
    except (ValueError, OverflowError, RecursionError):
        return None
    if time is None:
        return None
    if outer is not None and outer.zoned and not time[1]:
        if zone.shift or apart_ms(outer.moment, time[0]):
            raise OtherZone
        zone.before = time[0]
    is_plain = message.isprintable() and not _MEANING.search(message) and not _MEMBER.search(message, 0, start)
    return message if is_plain else None


def unwrap(line: str, zone: tzinfo) -> Request:
    """The request in a line. Raises ValueError with a short reason, RecursionError for JSON nested too deeply."""
    request = _in_text(line, zone, None, _LEVELS)
    if request.moment is not None and math.isnan(request.moment):
        raise ValueError("the times around the request are days apart: export the message with its own time only")
    return request


def _in_text(text: str, zone: tzinfo, outer: _Time | None, levels: int, *, quoted: bool = True) -> Request:
    """The request in a text; in one that cannot be read so, behind quotes and escapes."""
    text = _COLOUR.sub("", text) if "\x1b" in text or "1b[" in text else text
    text = _unquoted(text) if quoted else text
    try:
        return _as_it_is(text, zone, outer, levels)
    except _Quoted:
        raise
    except ValueError:
        is_whole = levels > 0 and "principal" in text  # it stands at the end of a request
        for undo in (_undoubled, _unescaped) if is_whole else ():
            try:
                if (plain := undo(text)) != text:
                    return _in_text(plain, zone, outer, levels - 1, quoted=False)
            except _Quoted:
                raise
            except (ValueError, KeyError):
                continue
        raise


class _Quoted(ValueError):
    """A fault in a text whose quotes are understood. Another reading could complete a message that is cut off."""


def _undoubled(text: str) -> str:
    """The text without quotes that are there twice, as in CSV. Of columns with the same message, the first counts."""
    known: set[str] = set()

    def plain(field: re.Match[str]) -> str:
        if _MARK.search(field[1]) is None or not ('""' in field[1] or COMPLETED in field[1]):
            return field[0]
        is_again = field[1] in known
        known.add(field[1])
        return "" if is_again else field[1].replace('""', '"')

    return _FIELD.sub(plain, text)


def _unescaped(text: str) -> str:
    """The text without backslashes, where no delimiter and no quotation mark tells of them.

    Raises ValueError or KeyError where one means nothing.
    """

    def plain(escape: re.Match[str]) -> str:
        codes, octets, letter = escape.groups()
        if codes:
            return str(json.loads(f'"{codes}"'))
        return _MEANT[letter] if letter else bytes.fromhex(octets.replace("\\x", "")).decode()

    return _ESCAPES.sub(plain, text)


def _check_names(before: str, request: str, plain: int) -> None:
    """Raises ValueError where names may have more backslashes or quotes than they had.

    `plain` is how many backslashes mean one: in JSON, each is there twice.
    """
    delimited = "\t" in request or _DELIMITED.search(before)
    runs = list(_BACKSLASHES.finditer(request)) if delimited else []
    odd = {run[1] for run in runs if len(run[0]) % (2 * plain) == plain}
    doubled = runs and not any(len(run[0]) % (2 * plain) for run in runs)
    coded = any(len(code) > 1 for code in odd)
    if doubled or coded or (plain == 1 and odd & _ADDED):
        raise _Quoted(_SEVERAL_MEANINGS)


_ADDED: Final = frozenset("'\"]=")


def _as_it_is(text: str, zone: tzinfo, outer: _Time | None, levels: int) -> Request:
    mark = _MARK.search(text)
    if '{""isForwarded""' in text:
        raise ValueError("truncated or malformed CSV")
    if mark is None and "Handling request:" in text:
        raise ValueError("a line of kafka.server.KafkaApis, without times: kafka.request.logger at DEBUG has them")
    if text.lstrip().startswith('"isForwarded"') or (mark is None and _PRINTED.fullmatch(text)):
        raise ValueError(SEVERAL_LINES)
    if mark is None or levels == 0:
        raise ValueError(_JOURNAL if LEFT_OUT.search(text) else NOT_A_LINE)
    start = text.find(START)
    is_bare = start >= 0 and _MEMBER.search(text, 0, start) is None  # else other members' times may come before
    if is_bare and (moment := _nearest(text, start, zone, outer)) is not None:
        fields, end = _decoded(text, start)
        return Request(fields, "", moment, origin_of(text[:start], text[end:]))
    is_open = False
    for opening, _ in zip(_OPENING.finditer(text, 0, mark.start() + 1), range(_TRIES), strict=False):
        try:
            value, end = _DECODE(text, opening.start())
        except json.JSONDecodeError:
            continue
        if isinstance(value, str) and (_TAIL.search(text, end) or re.match(r'["\w]', text[end : end + 1])):
            is_open = is_open or value.endswith("{")
            continue  # quotation marks before the text form, and in a name of it; of CSV; or of a text without escapes
        if end > mark.start() and _holds(value):
            _check_rest(text, end)
            before = text[: opening.start()]
            if opening[0] == '"' and "\\u" in text[opening.start() : end] and _TAIL.search(value):
                raise _Quoted(_SEVERAL_MEANINGS)  # a letter in JSON, or the user u1234 of a domain in CSV
            if opening[0] != '"' and '\\"' not in text:
                _check_names(before + text[end:], text[opening.start() : end], 2)
            if _MEMBER.search(before):  # of an object that is cut off, nobody knows what else it would tell
                return _in_value(value, zone, None, levels)._replace(origin=NO_SIGNS)
            around = last_moment(text, opening.start(), zone)
            try:
                request = _in_value(value, zone, outer if around is None else _Time(*around), levels)
            except ValueError as error:
                raise _Quoted(str(error)) from None
            return _from(_timed(request, text, end, zone), origin_of(before, text[end:]))
    if start >= 0:
        fields, end = _decoded(text, start)
        if is_open and '"' not in text[end:]:  # the end of an object without escapes would complete it
            raise ValueError("truncated or malformed JSON")
        signs = origin_of(text[:start], text[end:]) if is_open else NO_SIGNS
        return _timed(Request(fields, "", _nearest(text, start, zone, outer), signs), text, end, zone)
    if mark[0] == COMPLETED:
        body = text[mark.end() :]
        if _OLD.match(body):
            _check_rest(text, mark.end())
        if body.strip() == "{":
            raise ValueError(SEVERAL_LINES)
        if body.lstrip().startswith(("{", "\\")) and "isForwarded" in body[:40]:
            _decoded(body, body.index("{"))  # says where it is malformed
        if '""' in body and '"' in text[: mark.start()]:
            raise ValueError("a quote in a name may be there twice: export the lines as JSON")
        _check_names(text[: mark.start()], body, 1)
        request = Request(None, body, _nearest(text, mark.start(), zone, outer), origin_of(text[: mark.start()]))
        return _timed(request, text, max(map(text.rfind, ("principal:", "listener:"))), zone)
    if (brace := text.find("{")) >= 0:
        _decoded(text, brace)
    raise ValueError(NOT_A_LINE)


def _unquoted(text: str) -> str:
    """A text without what shells, YAML, SQL and XML do to quotes."""
    if not any(map(text.__contains__, "'<&")):  # a letter is found soonest
        return text
    while _SHELL_QUOTE in text:
        text = text.replace(_SHELL_QUOTE, "'")
    if "<Instant " in text:
        text = _INSTANT.sub(lambda time: f" {time[1]}.{int(time[2]):09} ", text)
    if "</" in text and _ELEMENT.search(text):
        text = unescape(text)
    while "{&" in text and _PAGE.search(text):
        text = unescape(text)
    for quoted in _APOSTROPHES.finditer(text) if "''" in text else ():
        if _MARK.search(quoted[0]) and '"' not in text[: quoted.start()]:  # else they are a name's, within JSON
            return text[: quoted.start()] + quoted[1].replace("''", "'") + text[quoted.end() :]
    return text


def _in_value(value: Any, zone: tzinfo, outer: _Time | None, levels: int) -> Request:
    """The request in a JSON value, or in the fields of a line of CSV."""
    if _is_bytes(value):
        value = bytes(value).decode()
    if isinstance(value, str):
        request = _in_text(value, zone, outer, levels - 1)
        header = {} if request.fields is None else request.fields.get("requestHeader") or {}
        names = (request.text.rstrip(), (request.fields or {}).get("principal"), header.get("clientId"))
        if any(isinstance(name, str) and _CONTROLS.search(name) for name in names):
            raise _Quoted(_SEVERAL_MEANINGS)  # backslashes of names that were not escaped as quotes were
        return request
    time = _time_of(value, zone)
    nearest = outer if time is None else time
    if isinstance(value, dict):
        value = _nested(value)
        if "isForwarded" in value and "requestHeader" in value:
            return Request(value, "", None if nearest is None else nearest.moment, origin_in(value))
    holding = [member for _, member in _named(value) if _holds(member)]
    texts = [member for member in holding if isinstance(member, str)]
    # Collectors keep the message beside what they made of it, and cut one of both.
    held = [
        _in_value(member, zone, nearest, levels)
        for member in holding
        if not any(member in text for text in texts if isinstance(member, str) and len(member) < len(text))
    ]
    if not held:
        raise ValueError(NOT_A_LINE)
    if any(request[:2] != held[0][:2] for request in held):
        raise ValueError(SEVERAL_REQUESTS)
    return _from(held[0], origin_in(value))


def _from(request: Request, origin: Mapping[str, str]) -> Request:
    """The request with what another envelope tells of its origin."""
    return request._replace(origin={**origin, **{f"{sign} inside": value for sign, value in request.origin.items()}})


def _nearest(text: str, end: int, zone: tzinfo, outer: _Time | None) -> float | None:
    """The time before a request. A local one without its zone is compared with a time around it that has one."""
    if (time := last_moment(text, end, zone)) is None:
        return None if outer is None else outer.moment
    moment, zoned = time
    if outer is None or zoned or not outer.zoned:
        return moment
    return in_zone_of(outer.moment, moment, zone)


def _timed(request: Request, text: str, end: int, zone: tzinfo) -> Request:
    """The request; one without a time has that of a column behind it."""
    if request.moment is not None:
        return request
    time = _time_of([*(stamp[0] for stamp in STAMP.finditer(text, end)), *MILLIS.findall(text, end)], zone)
    return request._replace(moment=None if time is None else time.moment)


def _decoded(text: str, start: int) -> tuple[Mapping[str, Any], int]:
    try:
        fields, end = _DECODE(text, start)
    except json.JSONDecodeError as error:
        if error.msg.startswith("Unterminated") or re.fullmatch(r"[\w.+-]*\s*", text[error.pos :]):
            raise ValueError(CUT_OFF) from None
        raise ValueError(f"malformed JSON: {error.msg.removesuffix(' at')}") from None
    if not isinstance(fields, dict):
        raise ValueError(NOT_A_LINE)
    _check_rest(text, end)
    if "\\" in text:
        _check_names(text[:start] + text[end:], text[start:end], 2)
    return fields, end


def _check_rest(text: str, end: int) -> None:
    """Raises ValueError where another request follows: ends of lines are lost where files or messages are joined."""
    if _MARK.search(text, end) or "sendTimeMs" in text[end:]:  # its beginning may be lost
        raise ValueError(SEVERAL_REQUESTS)


def _nested(value: dict[str, Any]) -> dict[str, Any]:
    """The object with members such as `requestHeader.clientId` put back into objects."""
    if not any(name.startswith("requestHeader.") for name in value):
        return value
    whole: dict[str, Any] = {}
    for name, member in value.items():
        *way, last = name.split(".")
        place = whole
        for step in way:
            place = place.setdefault(step, {})
            if not isinstance(place, dict):
                raise ValueError("the collector took the request apart: export the message itself")
        place[last] = member
    return whole


def _named(value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, dict):
        return value.items()
    return ((f"{place}", member) for place, member in enumerate(value if isinstance(value, list) else ()))


def _is_bytes(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 0 and type(value[0]) is int


def _holds(value: Any) -> bool:
    """Whether a request is in a value."""
    if isinstance(value, str) or _is_bytes(value):
        return _MARK.search(str(value)) is not None
    if isinstance(value, dict) and any(name == "isForwarded" or name.startswith("requestHeader.") for name in value):
        return True
    return any(_holds(member) for _, member in _named(value))


def _time_of(value: Any, zone: tzinfo) -> _Time | None:
    """The earliest time among the members of a value: collectors add theirs later.

    The time at which something began counts only without another. Where times are days apart, those count that are
    called nothing but a time. Without any, or with several, nobody knows the time: it is no number.
    """
    times = list(_times(value, zone))
    times = [(name, time) for name, time in times if _BEGINNING.search(name) is None] or times
    longest = max((time.digits for _, time in times), default=0)  # systemd's times since the boot are µs, too
    times = [(name, time) for name, time in times if time.digits in (0, longest)]
    if not _agree(times):
        times = [(name, time) for name, time in times if _A_TIME.fullmatch(name)]
        if not times or not _agree(times):
            return _Time(math.nan, False)
    return min((time for _, time in times), key=_order, default=None)


def _order(time: _Time) -> tuple[float, ...]:
    """The order of times; of one second, those without ms are last: they are its beginning, or its middle."""
    return time.moment // 1000, time.moment % 500 == 0, time.moment


def _agree(times: Sequence[tuple[str, _Time]]) -> bool:
    moments = [time.moment for _, time in times]
    return not moments or max(moments) - min(moments) < _DAY_MS


_INSTANTS: Final = {frozenset(names): names for names in (("epochSecond", "nanoOfSecond"), ("seconds", "nanos"))}
"""The members of a time in log4j2's layout of JSON, and in Google Cloud's entries."""


def _times(value: Any, zone: tzinfo) -> Iterator[tuple[str, _Time]]:
    for outer, whole in _named(value):
        name, member = outer, whole
        while isinstance(member, dict | list) and len(member) == 1 and not _holds(member):
            ((inner, member),) = _named(member)  # of a database that tells the types of values
            name = inner if _BEGINNING.search(inner) else name
        if isinstance(member, str) and len(member) < 64:
            time = moment_of(member, zone)
            if time is not None:
                yield name, _Time(*time)
            elif member.isascii() and member.isdigit() and len(member) in (13, 16, 19):
                yield name, _Time(epoch_ms(int(member)), True, len(member))
        elif isinstance(member, int | float) and not isinstance(member, bool):
            large = 1e12 <= member < 4e12 or 1e15 <= member < 4e15 or 1e18 <= member < 4e18
            if large or (1e9 <= member < 4e9 and (isinstance(member, float) or _TIMED.search(name))):
                yield name, _Time(epoch_ms(member), True)
        elif isinstance(member, dict) and (names := _INSTANTS.get(frozenset(member))):
            seconds, nanos = (member[part] for part in names)
            if type(seconds) is int and type(nanos) is int:
                # log4j2's default clock has milliseconds, whatever the unit of the field.
                yield name, _Time(seconds * 1000 + nanos / 1e6 + (0.5 if nanos % 1_000_000 == 0 else 0), True)
