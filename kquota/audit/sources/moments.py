"""The times of log lines: the usual layouts of log4j and of collectors, with zones in every spelling."""

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

FORMS: Final = (
    "2026-01-31 12:00:00,000 (all digits; also with T, /, . or a zone), 20260131T120000,000, 31 Jan 2026 12:00:00,000, "
    "31.01.2026 12:00:00,000, Jan 31, 2026 12:00:00 PM, epoch seconds with a fraction, epoch milliseconds, µs or ns"
)
"""The forms that are read, for errors."""
_MONTHS: Final = {
    name: number
    for number, name in enumerate(
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"], 1
    )
}
_MONTH: Final = rf"{'|'.join(_MONTHS)}|(?<=\.)[0-9]{{2}}"
# The summer and winter times that are one zone's alone.
_HOURS: Final = {
    **dict.fromkeys(("UTC", "GMT", "WET"), 0),
    **dict.fromkeys(("CET", "WEST", "MEZ"), 1),
    **dict.fromkeys(("CEST", "EET", "MESZ"), 2),
    **dict.fromkeys(("EEST", "MSK"), 3),
    **dict.fromkeys(("JST", "KST"), 9),
    **{"AEST": 10, "AEDT": 11, "NZST": 12, "NZDT": 13, "EST": -5, "EDT": -4, "CDT": -5, "MST": -7, "MDT": -6},
    **{"PST": -8, "PDT": -7, "AKST": -9, "AKDT": -8, "HST": -10},
}
_AMBIGUOUS: Final = ("CST", "IST", "BST", "AST", "ADT", "SST", "WAT", "ECT", "GST", "PKT")
_NAMES: Final = "|".join(sorted([*_HOURS, *_AMBIGUOUS], key=len, reverse=True))
_OTHER_NAMES: Final = r"[A-Z]{2,3}T|WIB|WITA|[A-Z][a-z]+(?:\ [A-Z][a-z]+)*\ Time"
"""Names of zones whose hours are not known here."""
_REGIONS: Final = (
    "Africa|America|Antarctica|Arctic|Asia|Atlantic|Australia|Brazil|Canada|Chile|Etc|Europe|Indian|Pacific|US"
)
_CLOCK: Final = "[0-9]{2}:[0-9]{2}:[0-9]{2}"
STAMP: Final = re.compile(
    rf"""(?<![0-9])(?:
        (?P<iso>[0-9]{{4}}[-/.][0-9]{{2}}[-/.][0-9]{{2}}(?:[T_]|[^\w+]{{1,3}}){_CLOCK})
      | (?P<basic>[0-9]{{8}}(?:T[0-9]{{6}}|[ T]{_CLOCK}))
      | (?P<day>[0-9]{{1,2}})(?P<apart>[ /.-])(?P<month>{_MONTH})(?P=apart)(?P<year>[0-9]{{4}})
        [ ,:]\ ?(?P<clock>{_CLOCK})
      | (?P<month2>{_MONTH})\ {{1,2}}(?P<day2>[0-9]{{1,2}}),?\ (?P<year2>[0-9]{{4}}),?\ (?:@\ )?(?P<clock2>{_CLOCK})
    )
    (?:(?:[.,]|:(?=[0-9]{{3}}(?![0-9])))(?P<fraction>[0-9]{{1,9}}))?
    (?:\s?(?P<half>[APap])(?:[Mm]|\.\s?[Mm]\.)(?!\w))?
    (?:\ ?(?:[\[(](?=[A-Z]))?(?P<zone>Z(?![A-Za-z])|(?:UTC|GMT)?[+-][0-9]{{1,2}}(?::?[0-9]{{2}})?(?![0-9:])
      |(?:{_NAMES}|{_OTHER_NAMES})(?![A-Za-z])|(?:{_REGIONS})/[A-Za-z_+\-0-9/]+))?(?![0-9])""",
    re.VERBOSE,
)
_OFFSET: Final = re.compile(r"(?:UTC|GMT)?([+-])([0-9]{1,2}):?([0-9]{2})?")
MILLIS: Final = re.compile(
    r"""(?:\A|\\t|[\s\[(<|'":=,])([12][0-9]{9}(?:\.[0-9]{3,9}|[0-9]{3}|[0-9]{6}|[0-9]{9}))(?=[\s\])>|'":,\\])"""
)
"""Epoch seconds with a fraction, ms, µs or ns."""
_QUOTES: Final = re.compile(r"""['"]|<[A-Za-z]""")
_ZONE_MS: Final = 900_000
"""Zones differ by quarters of an hour."""
_EAST_MS, _WEST_MS = -50_400_000, 43_200_000
"""What the clocks of zones are off at most."""
_HOUR_MS, _WEST_HALVES_MS = 3_600_000, (9_000_000, 12_600_000, 34_200_000)
"""In the west, zones differ by hours, but for Newfoundland's and the Marquesas'. A late collector looks like those."""
_EARLY_MS, _LATE_MS = -2_000, 60_000
"""How much earlier or later than the broker a collector may write its own time, by its own clock."""
# Half of what a printed fraction of n digits leaves out, in ms: times are cut, not rounded, so this centres the error.
UNSEEN: Final[tuple[float, ...]] = tuple(500 / 10**digits for digits in range(10))


def layout_before(text: str, zone: tzinfo) -> tuple[int, ...] | None:
    """Where the time stands that `last_moment` finds before the end of a text; None for nowhere usual.

    It is where its second begins, where its zone begins and ends, and where the digits of its fraction do. It stands
    there in any text that differs in digits only. Behind a quotation mark or a tag, names may be quoted, and a nearer
    time may follow.
    """
    stamps = list(STAMP.finditer(text))
    if not stamps or _QUOTES.search(text):
        return None
    stamp = stamps[-1]
    if not re.fullmatch("[0-9-]{10}[ T][0-9:]{8}", stamp["iso"] or "") or stamp["half"] or len(stamp["zone"] or "") > 6:
        return None
    time = last_moment(text, len(text), zone)
    if time is None or _moment(stamp, zone) != time[0]:
        return None
    spans = (stamp.span(name) for name in ("zone", "fraction"))
    return (stamp.start(), *(max(place, 0) for span in spans for place in span))


def last_moment(line: str, end: int, zone: tzinfo) -> tuple[float, bool] | None:
    """The last timestamp before `end` in epoch ms, and whether it says its zone; None without any.

    log4j's `S` prints 5 ms as `,5`. Those who leave out zeros at the end, as Go does, write a point and the zone.
    """
    stamps = list(STAMP.finditer(line, 0, end))
    if stamps:
        moment, zoned = _moment(stamps[-1], zone), stamps[-1]["zone"] is not None
        fraction = stamps[-1].start("fraction")
        if len(stamps[-1]["fraction"] or "000") < 3 and not (zoned and line[fraction - 1] == "."):
            return None
        around = [stamp for stamp in stamps[:-1] if stamp["zone"] is not None]
        if not zoned and around:
            moment = in_zone_of(_moment(around[-1], zone), moment, zone)
        return moment, zoned
    millis = list(MILLIS.finditer(line, 0, end))
    return (epoch_ms(float(millis[-1][1])), True) if millis else None


class LogZone(ZoneInfo):
    """The zone of the times of one log. Collectors of its lines may show another one."""

    shift = 0.0
    """From times in this zone to those in the other, in ms."""
    before: float | None = None
    """The time of the line before."""


def apart_ms(collected: float, moment: float) -> float:
    """How much later the time of a collector is than a local time, in whole quarters of an hour, as zones differ."""
    return (collected - moment - _EARLY_MS) // _ZONE_MS * _ZONE_MS


def in_zone_of(collected: float, moment: float, zone: tzinfo) -> float:
    """A local time beside the time of its collector, which has a zone: in the zone in which both are of one minute.

    A collector may be late, by anything. So the first line of a log shows the zone of all, unless another one brings
    a line nearer to the line before: then the clock changed.
    """
    off = apart_ms(collected, moment)
    own = datetime.fromtimestamp(moment / 1000, zone).utcoffset() or timedelta()
    west = off - own // timedelta(milliseconds=1)
    is_zone = _EAST_MS <= west <= _WEST_MS and collected - moment - off < _LATE_MS
    is_zone &= west <= 0 or west % _HOUR_MS == 0 or west in _WEST_HALVES_MS
    shifted = moment + off if is_zone else moment
    if isinstance(zone, LogZone):
        known, before = moment + zone.shift, zone.before
        if before is not None and (not is_zone or abs(known - before) <= abs(shifted - before)):
            shifted = known
        zone.shift, zone.before = shifted - moment, shifted
    return shifted


def moment_of(text: str, zone: tzinfo) -> tuple[float, bool] | None:
    """The time that a text is as a whole, and whether it says its zone; None for all other texts."""
    stamp = STAMP.fullmatch(text.strip())
    return None if stamp is None else (_moment(stamp, zone), stamp["zone"] is not None)


def epoch_ms(number: float) -> float:
    """Epoch ms of a number of seconds, ms, µs or ns since 1970: the size of the number says which."""
    if number < 1e12:
        return number * 1000
    return number + UNSEEN[3] if number < 1e15 else number / 1000 if number < 1e18 else number / 1e6


def _moment(stamp: re.Match[str], zone: tzinfo) -> float:
    fraction = stamp["fraction"] or ""
    part = int(fraction) * 1000 / 10 ** len(fraction) if fraction else 0.0
    text = _text(stamp)
    if stamp["half"]:  # a clock of twelve hours
        text = f"{text[:11]}{int(text[11:13]) % 12 + 12 * (stamp['half'] in 'Pp'):02}{text[13:]}"
    return second_of(text, stamp["zone"], zone) + part + UNSEEN[len(fraction)]


def _text(stamp: re.Match[str]) -> str:
    """A time as `YYYY-MM-DD HH:MM:SS`."""
    if iso := stamp["iso"]:
        return f"{iso[:4]}-{iso[5:7]}-{iso[8:10]} {iso[-8:]}"
    if stamp["basic"]:
        digits = re.sub("[^0-9]", "", stamp[0])
        return f"{digits[:4]}-{digits[4:6]}-{digits[6:8]} {digits[8:10]}:{digits[10:12]}:{digits[12:14]}"
    year, month, day, clock = (stamp[name] or stamp[f"{name}2"] for name in ("year", "month", "day", "clock"))
    return f"{year}-{_MONTHS.get(month) or int(month):02}-{int(day):02} {clock}"


@lru_cache(maxsize=4096)
def second_of(text: str, offset: str | None, zone: tzinfo) -> float:
    """Epoch ms of `YYYY-MM-DD HH:MM:SS` in the given zone, or in the zone that stands with it. Raises ValueError."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=zone if offset is None else _zone(offset, moment, zone)).timestamp() * 1000
    except (ValueError, OverflowError) as error:
        if offset is not None and str(error).startswith("the zone"):
            raise
        raise ValueError(f"{text!r} is not a time") from None


def _zone(text: str, moment: datetime, zone: tzinfo) -> tzinfo:
    """The zone of a time by its name or offset. Raises ValueError for a name that several zones have."""
    if text == "Z":
        return UTC
    if match := _OFFSET.fullmatch(text):
        minutes = int(match[2]) * 60 + int(match[3] or 0)
        return timezone(timedelta(minutes=-minutes if match[1] == "-" else minutes))
    if text in _HOURS:
        return timezone(timedelta(hours=_HOURS[text]))
    if "/" in text:
        try:
            return ZoneInfo(text)
        except (ZoneInfoNotFoundError, ValueError):
            raise ValueError(f"the zone {text} of a time is not known") from None
    if moment.replace(tzinfo=zone).tzname() == text:
        return zone
    raise ValueError(f"the zone {text} of a time is of several places, or not known: --log-timezone says which")
