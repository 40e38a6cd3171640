"""A compiled walk over the lines of a text, each of which holds a JSON object: some of its values, as numbers.

Between two values of a line stands what stood there in earlier lines: a joint. A walk compares it, keeps the value
behind it if it is to be kept, and goes on to the joints that may follow there. At a joint that is not known it stops,
and Python learns it (`joints`). So no byte of a line is taken that was not checked once, and what is read means nothing
here. Whatever is not usual ends the walk over a line, which is then left to another reader: escapes, letters beyond
ASCII, numbers with an exponent or of more than 18 digits, and a kept value that comes twice.

Importing this module loads numba.
"""

from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from kquota.audit.sources.names import WIDTH
from kquota.audit.sources.requests import add
from kquota.core.enforcement.kernel import jit

BAD: Final = -1
UNSET: Final = -(1 << 62)
"""The value of a key that is not there."""
NUMBER, INT, TIME, STRING, TEXT, END, ODD = range(7)
"""What is behind a joint: a number that is skipped, kept as an integer or kept as a time; a text that is skipped or
kept; the end of the object; something unusual."""
BEGIN_TEXT, LENGTH, NEXT, PATH, KIND, LEVEL, CELL, MARKS, MARKS_END, JOINT = range(10)
"""The columns of a joint: where its text begins, how long it is, the next joint in the same place, where it leads to,
what is behind it, where that is kept, and its marks."""
MARK_LEVEL, MARK_CELL, MARK_VALUE, MARK_ITEM, MARK = range(5)
"""The columns of a mark, which is what a joint shows by itself: a value of a cell. Or that an item is added to the list
that is counted in the cell: COUNTED, or the type of an item whose values are kept a level deeper."""
COUNTED, VALUE = 0, -1
TYPE, LINE, PARENT, FIRST_CELL, CELLS = 0, 1, 2, 3, 6
"""The cells of an item in a list: its type, its line, the item that it is in, and then its values."""
USUAL, BEGIN, SHAPE, SECOND, FRACTION, FIRST_SLOT = range(6)
"""The slots of a line: whether it is usual, where it begins, the shape of what stands before its object, its time."""
DONE, FULL, NEW_SHAPE, NEW_JOINT = range(4)
"""Why a walk stopped: at the end, for room, at a shape or a joint that is not known."""
MOST_BEHIND: Final = 200
"""How much may stand behind an object in its line: no request is as short."""
LONGEST: Final = 4096
"""A text or a joint that is longer is unusual; the place before an object has an eighth of it."""


class Texts(NamedTuple):
    """Texts and their numbers: open addressing. The number 0 is null's."""

    slots: Any
    entries: Any
    """(hash, start, length) of each."""
    letters: Any
    used: Any
    """How many entries and how many letters there are."""
    layouts: Any
    """Of each shape: 0 where it is new, 1 with a time, 2 for none; begin of the second, of a zone, its end, the same of
    the fraction."""


class Joints(NamedTuple):
    """What may stand between values."""

    rows: Any
    """A joint each; the first one is none."""
    letters: Any
    marks: Any
    firsts: Any
    """The first of the joints behind each path, and in `guesses` the one that came last."""
    guesses: Any
    used: Any
    """How many joints, letters and marks there are; and paths."""


class Store(NamedTuple):
    """The slots of lines, one line after the other, then the cells of items; `times` are the same bytes as doubles."""

    cells: Any
    times: Any
    items: Any
    """(where the items begin, how many there may be, the slots of a line)"""
    scratch: Any
    bases: Any
    """Where the cells of the line begin, and of the item of each level that the walk is in."""
    state: Any
    """(where the walk is, lines, items, how much stands before an object; of a new joint its path and its place)"""


# --- What numba has no words for. LLVM makes the processor's own vector instructions of it.


def _loaded(context, builder, signature, args, kind, which=0):
    array = make_array(signature.args[which])(context, builder, args[which])
    value = builder.load(builder.bitcast(builder.gep(array.data, [args[which + 1]]), kind.as_pointer()))
    value.align = 1
    return value


_VECTOR = ir.VectorType(ir.IntType(8), WIDTH)


def _all(value):
    return ir.Constant(_VECTOR, [value] * WIDTH)


def _first(builder, flags):
    mask = builder.bitcast(flags, ir.IntType(WIDTH))
    kind = ir.FunctionType(mask.type, [mask.type, ir.IntType(1)])
    count = cgutils.get_or_insert_function(builder.module, kind, f"llvm.cttz.i{WIDTH}")
    return builder.zext(builder.call(count, [mask, ir.Constant(ir.IntType(1), 0)]), ir.IntType(64))


@intrinsic
def byte(typing, buffer, place):
    """The byte at a place."""

    def code(context, builder, signature, args):
        return builder.zext(_loaded(context, builder, signature, args, ir.IntType(8)), ir.IntType(64))

    return types.int64(buffer, types.int64), code


@intrinsic
def word(typing, buffer, place):
    """The eight bytes from a place on."""

    def code(context, builder, signature, args):
        return _loaded(context, builder, signature, args, ir.IntType(64))

    return types.uint64(buffer, types.int64), code


@intrinsic
def plain(typing, buffer, place):
    """How many bytes come before a quote, a backslash, a control or a byte beyond ASCII, WIDTH at most."""

    def code(context, builder, signature, args):
        text = _loaded(context, builder, signature, args, _VECTOR)
        stops = builder.or_(builder.icmp_unsigned("==", text, _all(34)), builder.icmp_unsigned("==", text, _all(92)))
        return _first(builder, builder.or_(stops, builder.icmp_signed("<", text, _all(32))))

    return types.int64(buffer, types.int64), code


@intrinsic
def same(typing, buffer, place, other, there):
    """How many bytes are equal to the bytes of another buffer, WIDTH at most."""

    def code(context, builder, signature, args):
        one, two = (_loaded(context, builder, signature, args, _VECTOR, which) for which in (0, 2))
        return _first(builder, builder.icmp_unsigned("!=", one, two))

    return types.int64(buffer, types.int64, other, types.int64), code


_options: Any = {"error_model": "numpy", "nogil": True, "_nrt": False}
_within: Any = {**_options, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
entry: Any = partial(jit, **_options)
called: Any = partial(jit, **_within)
inlined: Any = partial(jit, **_within, forceinline=True)

# --- Texts.

_P1, _P2, _29, _32 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93), np.uint64(29), np.uint64(32)
_MASKS = np.array([(1 << 8 * n) - 1 for n in range(8)], np.uint64)


@inlined
def digest(buffer, start, length):
    """A hash of a text."""
    mixed = np.uint64(length) * _P2
    while length >= 8:
        mixed = (mixed ^ word(buffer, start)) * _P1
        mixed ^= mixed >> _29
        start += 8
        length -= 8
    mixed = (mixed ^ (word(buffer, start) & _MASKS[length])) * _P1
    mixed = (mixed ^ (mixed >> _29)) * _P2
    return np.int64(mixed ^ (mixed >> _32))


@inlined
def equal(buffer, start, other, there, length):
    """Whether two texts of that length are the same."""
    while length > 0:
        if same(buffer, start, other, there) < min(length, WIDTH):
            return False
        start += WIDTH
        there += WIDTH
        length -= WIDTH
    return True


@called
def number_of(texts, buffer, start, end):
    """The number of a text; BAD where there is no room for it."""
    entries, mask, length = texts.entries, len(texts.slots) - 1, end - start
    mixed = digest(buffer, start, length)
    slot = mixed & mask
    while True:
        number = np.int64(texts.slots[slot])
        if number < 0:
            break
        if (
            entries[number, 0] == mixed
            and entries[number, 2] == length
            and equal(buffer, start, texts.letters, entries[number, 1], length)
        ):
            return number
        slot = (slot + 1) & mask
    number, place = texts.used[0], texts.used[1]
    if length > LONGEST or number == len(entries) or place + length + WIDTH > len(texts.letters):
        return np.int64(BAD)
    entries[number, 0], entries[number, 1], entries[number, 2] = mixed, place, length
    for at in range(length):
        texts.letters[place + at] = byte(buffer, start + at)
    texts.slots[slot] = number
    texts.used[0], texts.used[1] = number + 1, place + length
    return number


# --- Values. Each function gives the place behind one, BAD for what is not usual.

POWERS = 10.0 ** np.arange(23)


@inlined
def string_end(buffer, at):
    """The closing quote of a string whose first letter is there."""
    while True:
        length = plain(buffer, at)
        at += length
        if length < WIDTH:
            return at if byte(buffer, at) == 34 else BAD


@inlined
def digits(buffer, at, value):
    """Behind some digits, and the number that goes on with them."""
    here = byte(buffer, at) - 48
    while here >= 0 and here <= 9:
        value = value * 10 + here
        at += 1
        here = byte(buffer, at) - 48
    return at, value


@inlined
def number(buffer, at):
    """Behind a number, its digits as one integer, and how many of these are behind the point."""
    negative, bad = byte(buffer, at) == 45, (np.int64(BAD), np.int64(0), np.int64(0))
    begin = at + negative
    end, value = digits(buffer, begin, np.int64(0))
    if end == begin or end - begin > 18 or (byte(buffer, begin) == 48 and (negative or end - begin > 1)):
        return bad
    places = np.int64(0)
    if byte(buffer, end) == 46:
        point = end + 1
        end, value = digits(buffer, point, value)
        places = end - point
        if places == 0:
            return bad
    here = byte(buffer, end)
    if here == 46 or here == 101 or here == 69:
        return bad
    return end, -value if negative else value, places


# --- Lines.


@inlined
def fits(buffer, at, joints, joint):
    """Whether a joint stands there, and behind it what it says."""
    length = joints.rows[joint, LENGTH]
    if not equal(joints.letters, joints.rows[joint, BEGIN_TEXT], buffer, at, length):
        return False
    if joints.rows[joint, KIND] > TIME:
        return True
    here = byte(buffer, at + length)
    return here == 45 or (here >= 48 and here <= 57)


@inlined
def marked(store, mark):
    """Keeps what a joint shows by itself; whether that is usual."""
    cells, state, level = store.cells, store.state, mark[MARK_LEVEL]
    cell = store.bases[level] + mark[MARK_CELL]
    if mark[MARK_ITEM] == VALUE:
        if cells[cell] != UNSET:
            return False
        cells[cell] = mark[MARK_VALUE]
        return True
    cells[cell] += 1
    if mark[MARK_ITEM] != COUNTED:
        if state[2] == store.items[1]:
            return False
        base = store.items[0] + state[2] * CELLS
        state[2] += 1
        parent = (store.bases[level] - store.items[0]) // CELLS if level > 0 else BAD
        cells[base], cells[base + 1], cells[base + 2] = mark[MARK_ITEM], state[1], parent
        cells[base + 3], cells[base + 4], cells[base + 5] = UNSET, UNSET, UNSET
        store.bases[level + 1] = base
    return True


@inlined
def walked(buffer, at, joints, texts, store):
    """Behind an object whose first key is there; the place of a joint that is new, if that is in `state`."""
    path = 0
    while True:
        joint = joints.guesses[path]
        if joint == 0 or not fits(buffer, at, joints, joint):
            joint = joints.firsts[path]
            while joint > 0 and not fits(buffer, at, joints, joint):
                joint = joints.rows[joint, NEXT]
            if joint == 0:
                store.state[4] = path
                return at
            joints.guesses[path] = joint
        row = joints.rows[joint]
        at += row[LENGTH]
        for mark in range(row[MARKS], row[MARKS_END]):
            if not marked(store, joints.marks[mark]):
                return BAD
        kind, path, cell = row[KIND], row[PATH], store.bases[row[LEVEL]] + row[CELL]
        if kind == END:
            return at
        if kind == ODD or (kind in (INT, TIME, TEXT) and store.cells[cell] != UNSET):
            return BAD
        begin = at
        if kind <= TIME:
            at, value, places = number(buffer, at)
            if kind == INT:
                store.cells[cell] = value
                at = BAD if places > 0 else at
            elif kind == TIME:  # of no more than 15 digits, it is what any reader makes of them
                store.times[cell] = value / POWERS[min(places, 15)]
                at = BAD if value < 0 or at - begin > 15 + (places > 0) else at
        else:
            at = string_end(buffer, at)
            if kind == TEXT and at >= 0:
                store.cells[cell] = number_of(texts, buffer, begin, at)
                at = BAD if store.cells[cell] < 0 else at
        if at < 0:
            return BAD


added: Any = entry(add)


@inlined
def line_end(buffer, at):
    """Behind the end of a line."""
    while True:
        at += plain(buffer, at)
        at += 1
        if byte(buffer, at - 1) == 10:
            return at


@inlined
def tail_end(buffer, at):
    """Behind the end of a line that is ASCII from a place on; BAD for another, or where another request may follow."""
    last = at + MOST_BEHIND
    while True:
        at += plain(buffer, at)
        here = byte(buffer, at)
        if here >= 128 or at > last:
            return BAD
        at += 1
        if here == 10:
            return at


@inlined
def stamped(buffer, at, start, texts, store, first):
    """Keeps the time before an object; DONE, NEW_SHAPE for a shape that is not known, BAD for one without a time."""
    length, scratch, lines = start - at, store.scratch, store.cells
    if length > LONGEST // 8:
        return BAD
    for place in range(length):
        here = buffer[at + place]
        scratch[place] = 48 if here >= 48 and here <= 57 else here
    shape = number_of(texts, scratch, 0, length)
    lines[first + SHAPE] = shape
    if shape < 0:
        return BAD
    layout = texts.layouts[shape]
    if layout[0] != 1:
        return NEW_SHAPE if layout[0] == 0 else BAD
    for place in range(19):
        scratch[place] = buffer[at + layout[1] + place]
    zone = layout[3] - layout[2]
    for place in range(zone):
        scratch[19 + place] = buffer[at + layout[2] + place]
    lines[first + SECOND] = number_of(texts, scratch, 0, 19 + zone)
    lines[first + FRACTION] = digits(buffer, at + layout[4], np.int64(0))[1] if layout[5] > 0 else 0
    return DONE if lines[first + SECOND] >= 0 else BAD


@entry
def walk(buffer, stop, start_text, joints, texts, store):
    """Walks over lines up to `stop`, which is behind the end of one; why it stopped.

    `start_text` is the beginning of an object, which is looked for: with WIDTH bytes behind it.
    """
    state, cells, slots, opening = store.state, store.cells, store.items[2], len(start_text) - WIDTH
    at, guess = state[0], state[3]
    reason = DONE
    while at < stop:
        first, begun = state[1] * slots, state[2]
        if (
            first + slots > store.items[0]
            or 2 * begun > store.items[1]
            or texts.used[0] + 512 > len(texts.entries)
            or texts.used[1] + 16 * LONGEST > len(texts.letters)
        ):
            reason = FULL
            break
        for slot in range(first, first + slots):
            cells[slot] = UNSET
        cells[first + BEGIN] = at
        start = at + guess
        if start >= stop or same(buffer, start, start_text, 0) < opening:
            start = at
            while byte(buffer, start) != 123 or same(buffer, start, start_text, 0) < opening:
                if byte(buffer, start) == 10:
                    start = np.int64(BAD)
                    break
                start += 1
        end = np.int64(BAD)
        if start >= 0:
            how = stamped(buffer, at, start, texts, store, first)
            if how == NEW_SHAPE:
                reason, guess = how, start - at
                break
            if how == DONE:
                guess = start - at
                store.bases[0], state[4] = first, BAD
                end = walked(buffer, start + 1, joints, texts, store)
                if state[4] >= 0:
                    state[5], state[2] = end, begun
                    end = np.int64(BAD)
                    if joints.used[0] < len(joints.rows):
                        reason = NEW_JOINT
                        break
                if end >= 0:
                    end = tail_end(buffer, end)
        cells[first + USUAL] = end >= 0
        if end < 0:
            state[2] = begun
            end = line_end(buffer, at)
        at = end
        state[1] += 1
    state[0], state[3] = at, guess
    return reason
