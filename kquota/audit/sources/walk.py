"""A compiled walk over the lines of a text, each of which holds a JSON object: values by their keys, as numbers.

A line is walked token by token, and every byte of its JSON is checked. What is to be done with a value stands in a
table, by the object that it is in and its key. Whatever is not usual ends the walk over a line, which is then left to
another reader. Unusual are escapes, letters beyond ASCII, and spaces between tokens. So are numbers with an exponent or
of more than 18 digits, a key that counts and comes twice, and a value of another type. What is read means nothing here.

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
STRANGE: Final = -2
"""The value of an object that is something else."""
NOTHING: Final = 0
"""The number of the text null."""
SKIP, INT, TIME, TEXT, FALSE, COUNT, INTS, OBJECT, LIST, ODD = range(10)
"""What is done with a value; of a list in COUNT only the length is kept, -1 for null."""
TYPE, LINE, PARENT, FIRST_CELL, CELLS = 0, 1, 2, 3, 6
"""The cells of an item in a list: its object's number, its line, the item that it is in, and then its values."""
USUAL, BEGIN, SHAPE, SECOND, FRACTION, FIRST_SLOT = range(6)
"""The slots of a line: whether it is usual, where it begins, the shape of what stands before its object, its time."""
DONE, FULL, NEW = range(3)
"""Why a walk stopped: at the end, for room, at a shape that is not known."""
MOST_BEHIND: Final = 200
"""How much may stand behind an object in its line: no request is as short."""
LONGEST: Final = 4096
"""A text that is longer is unusual; the place before an object has an eighth of it."""


class Texts(NamedTuple):
    """Texts and their numbers: open addressing."""

    slots: Any
    entries: Any
    """(hash, start, length) of each."""
    letters: Any
    used: Any
    """How many entries and how many letters there are."""
    layouts: Any
    """Of each shape: 0 where it is new, 1 with a time, 2 for none; begin of the second, of a zone, its end, the same of
    the fraction."""


class Plan(NamedTuple):
    """What is done with the values of each object by their keys (columns of `actions`), whose texts come first."""

    actions: Any
    words: Any
    """The keys as they stand in a line, WIDTH bytes each."""
    lengths: Any
    lists: Any
    """Whether an object is an item of a list."""
    heads: Any
    """For the object that names another (`head`): where it is left to, by the number of the name."""
    guesses: Any
    """The key that came last behind each key of each object."""
    start: Any
    """The beginning of an object, which is looked for."""
    whole: Any
    """(the slots of a line, the object HEAD, the slot of the name in it, the length of `start`)"""


class Found(NamedTuple):
    """The values of lines, one after the other, and the values of items; `times` are the same bytes as doubles."""

    lines: Any
    times: Any
    items: Any
    scratch: Any
    stack: Any
    state: Any
    """(where the walk is, lines, items, the guess where an object starts)"""


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
        found = _loaded(context, builder, signature, args, _VECTOR)
        stops = builder.or_(builder.icmp_unsigned("==", found, _all(34)), builder.icmp_unsigned("==", found, _all(92)))
        return _first(builder, builder.or_(stops, builder.icmp_signed("<", found, _all(32))))

    return types.int64(buffer, types.int64), code


@intrinsic
def numerals(typing, buffer, place):
    """How many digits there are, WIDTH at most."""

    def code(context, builder, signature, args):
        found = builder.sub(_loaded(context, builder, signature, args, _VECTOR), _all(48))
        return _first(builder, builder.icmp_unsigned(">", found, _all(9)))

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
def number_of(texts, buffer, start, end, add):
    """The number of a text; BAD for one that is not known and not added."""
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
    if not add or length > LONGEST or number == len(entries) or place + length + WIDTH > len(texts.letters):
        return np.int64(BAD)
    entries[number, 0], entries[number, 1], entries[number, 2] = mixed, place, length
    for at in range(length):
        texts.letters[place + at] = byte(buffer, start + at)
    texts.slots[slot] = number
    texts.used[0], texts.used[1] = number + 1, place + length
    return number


# --- Tokens. Each function gives the place behind one, BAD for what is not usual.

_TENS, POWERS = np.array([10**n for n in range(9)]), 10.0 ** np.arange(23)
_8, _16 = np.uint64(8), np.uint64(16)
_LOW, _PAIRS, _FOURS = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)
_BY_TEN, _BY_HUNDRED, _BY_THOUSANDS = np.uint64(10 << 8 | 1), np.uint64(100 << 16 | 1), np.uint64(10000 << 32 | 1)
_FALSE, _TRUE, _NULL = (np.frombuffer(text + bytes(WIDTH), np.uint8) for text in (b"false", b"true", b"null"))


@inlined
def string_end(buffer, at):
    """Behind a string whose first letter is there."""
    while True:
        length = plain(buffer, at)
        at += length
        if length < WIDTH:
            return at + 1 if byte(buffer, at) == 34 else BAD


@inlined
def key_end(buffer, at):
    """Behind a key and its colon."""
    if byte(buffer, at) != 34:
        return BAD
    end = string_end(buffer, at + 1)
    return end + 1 if end >= 0 and byte(buffer, end) == 58 else BAD


@inlined
def digits_end(buffer, at):
    """Behind the digits, if there are any."""
    while True:
        length = numerals(buffer, at)
        at += length
        if length < WIDTH:
            return at


@inlined
def eight(text):
    """The number that eight digits are; zero bytes before them count as none."""
    text = (text & _LOW) * _BY_TEN >> _8
    text = (text & _PAIRS) * _BY_HUNDRED >> _16
    return np.int64((text & _FOURS) * _BY_THOUSANDS >> _32)


@inlined
def digits(buffer, start, end, value):
    """The number that goes on with those digits."""
    while end - start >= 8:
        value = value * 100_000_000 + eight(word(buffer, start))
        start += 8
    if end > start:
        value = value * _TENS[end - start] + eight(word(buffer, start) << np.uint64(64 - 8 * (end - start)))
    return value


@inlined
def whole_end(buffer, at):
    """Behind the whole part of a number, whatever follows."""
    if byte(buffer, at) == 45:
        at += 1
        if byte(buffer, at) == 48:
            return BAD
    end = digits_end(buffer, at)
    return BAD if end == at or end - at > 18 or (byte(buffer, at) == 48 and end - at > 1) else end


@inlined
def is_more(buffer, at):
    """Whether a number goes on with a fraction or an exponent."""
    here = byte(buffer, at)
    return here == 46 or here == 101 or here == 69


@inlined
def integer(buffer, at, values, cell):
    """Behind an integer, which is kept."""
    end = whole_end(buffer, at)
    if end < 0 or is_more(buffer, end):
        return BAD
    negative = byte(buffer, at) == 45
    value = digits(buffer, at + negative, end, np.int64(0))
    values[cell] = -value if negative else value
    return end


@inlined
def moment(buffer, at, times, cell):
    """Behind a time, which is kept. Of no more than 15 digits, it is what any reader makes of them."""
    end = whole_end(buffer, at)
    if end < 0 or end - at > 15 or byte(buffer, at) == 45:
        return BAD
    value, places = digits(buffer, at, end, np.int64(0)), 0
    if byte(buffer, end) == 46:
        point, end = end, digits_end(buffer, end + 1)
        places = end - point - 1
        if places == 0 or end - at > 16:
            return BAD
        value = digits(buffer, point + 1, end, value)
    times[cell] = value / POWERS[places]
    return BAD if is_more(buffer, end) else end


@inlined
def text(buffer, at, texts, values, cell):
    """Behind a text or null, whose number is kept."""
    if byte(buffer, at) == 34:
        end = string_end(buffer, at + 1)
        if end >= 0:
            values[cell] = number_of(texts, buffer, at + 1, end - 1, True)
        return end if end >= 0 and values[cell] >= 0 else BAD
    values[cell] = NOTHING
    return at + 4 if same(buffer, at, _NULL, 0) >= 4 else BAD


@called
def skipped(buffer, at):
    """Behind any value."""
    depth = 0
    objects = np.int64(0)  # a bit for each level: whether it is an object
    while True:
        here = byte(buffer, at)
        if here == 34:
            at = string_end(buffer, at + 1)
        elif here == 123 or here == 91:
            at += 1
            if byte(buffer, at) == here + 2:  # empty
                at += 1
            else:
                if depth == 60:
                    return BAD
                depth += 1
                objects = objects << 1 | (here == 123)
                if here == 123:
                    at = key_end(buffer, at)
                    if at < 0:
                        return BAD
                continue
        elif here == 45 or (here >= 48 and here <= 57):
            at = whole_end(buffer, at)
            if at >= 0 and byte(buffer, at) == 46:
                end = digits_end(buffer, at + 1)
                at = end if end > at + 1 else BAD
            if at >= 0 and is_more(buffer, at):
                return BAD
        elif same(buffer, at, _NULL, 0) >= 4 or same(buffer, at, _TRUE, 0) >= 4:
            at += 4
        else:
            at = at + 5 if same(buffer, at, _FALSE, 0) >= 5 else BAD
        if at < 0:
            return BAD
        while True:
            if depth == 0:
                return at
            here = byte(buffer, at)
            at += 1
            if here == 44:
                if objects & 1:
                    at = key_end(buffer, at)
                    if at < 0:
                        return BAD
                break
            if here != (125 if objects & 1 else 93):
                return BAD
            depth -= 1
            objects = objects >> 1


@called
def counted(buffer, at, values, cell):
    """Behind a list, whose items are counted, or null."""
    values[cell] = -1
    if byte(buffer, at) != 91:
        return at + 4 if same(buffer, at, _NULL, 0) >= 4 else BAD
    values[cell] = 0
    at += 1
    if byte(buffer, at) == 93:
        return at + 1
    while True:
        at = skipped(buffer, at)
        if at < 0:
            return BAD
        values[cell] += 1
        at += 1
        if byte(buffer, at - 1) != 44:
            return at if byte(buffer, at - 1) == 93 else BAD


# --- Objects.


@inlined
def new_item(found, where, parent):
    """Begins an item; its first cell, BAD where there is no room."""
    state, items = found.state, found.items
    base = state[2] * CELLS
    if base + CELLS > len(items):
        return BAD
    state[2] += 1
    items[base], items[base + 1], items[base + 2] = where, state[1], parent
    items[base + 3], items[base + 4], items[base + 5] = UNSET, UNSET, UNSET
    return base


@called
def integers(buffer, at, found, values, cell, where, parent):
    """Behind a list of integers, each of which is an item."""
    if byte(buffer, at) != 91:
        return BAD
    values[cell] = 0
    at += 1
    if byte(buffer, at) == 93:
        return at + 1
    while True:
        base = new_item(found, where, parent)
        if base < 0:
            return BAD
        at = integer(buffer, at, found.items, base + FIRST_CELL)
        if at < 0:
            return BAD
        values[cell] += 1
        at += 1
        if byte(buffer, at - 1) != 44:
            return at if byte(buffer, at - 1) == 93 else BAD


@inlined
def walked(buffer, at, plan, texts, found, first):
    """Behind an object whose values are kept from the cell `first` of the lines on."""
    actions, stack, guesses, words = plan.actions, found.stack, plan.guesses, plan.actions.shape[1]
    depth, where, base = 0, 0, first
    at += 1
    behind = 0
    while True:
        # At a key: mostly the one that came there the last time.
        key = guesses[behind]
        length = plan.lengths[key]
        if key > 0 and same(buffer, at, plan.words, WIDTH * key) >= length:
            at += length
        else:
            begin = at + 1
            at = key_end(buffer, at)
            if at < 0:
                return BAD
            key = number_of(texts, buffer, begin, at - 2, False)
            if key < 0 or key >= words:
                key = 0
            guesses[behind] = key
        behind = where * words + key
        action = actions[where, key]
        kind, inside, cell = action & 255, action >> 8 & 255, base + (action >> 16)
        values = found.items if plan.lists[where] else found.lines
        here = byte(buffer, at)
        if kind == SKIP:
            at = skipped(buffer, at)
        elif kind == FALSE:
            at = at + 5 if same(buffer, at, _FALSE, 0) >= 5 else BAD
        elif kind == ODD or values[cell] != UNSET:
            return BAD
        elif kind == INT:
            at = integer(buffer, at, values, cell)
        elif kind == TEXT:
            at = text(buffer, at, texts, values, cell)
        elif kind == TIME:
            at = moment(buffer, at, found.times, cell)
        elif kind == COUNT:
            at = counted(buffer, at, values, cell)
        elif kind == INTS:
            at = integers(buffer, at, found, values, cell, inside, base // CELLS)
        elif kind == LIST and byte(buffer, at) == 91 and byte(buffer, at + 1) == 93:
            values[cell] = 0
            at += 2
        elif here == 123 or kind == LIST:
            stack[depth], stack[depth + 1], stack[depth + 2], stack[depth + 3] = where, base, cell, behind
            values[cell] = kind == OBJECT
            if kind == LIST:
                if here != 91 or byte(buffer, at + 1) != 123:
                    return BAD
                base = new_item(found, inside, base // CELLS if plan.lists[where] else BAD)
                if base < 0:
                    return BAD
                at += 1
            depth, where, at = depth + 4, inside, at + 1
            behind = where * words
            if byte(buffer, at) != 125:
                continue
        else:
            values[cell] = STRANGE
            at = skipped(buffer, at)
        if at < 0:
            return BAD
        # Behind a value.
        while True:
            here = byte(buffer, at)
            at += 1
            if here == 44:
                break
            if here != 125:
                return BAD
            if depth == 0:
                return at
            container = stack[depth - 4]
            if plan.lists[where]:
                (found.items if plan.lists[container] else found.lines)[stack[depth - 2]] += 1
                here = byte(buffer, at)
                at += 1
                if here == 44:
                    base = new_item(found, where, stack[depth - 3] // CELLS if plan.lists[container] else BAD)
                    if base < 0 or byte(buffer, at) != 123:
                        return BAD
                    at += 1
                    behind = where * words
                    if byte(buffer, at) == 125:
                        continue
                    break
                if here != 93:
                    return BAD
            if where == plan.whole[1]:  # what it names says what the object is that it is in
                name = found.lines[first + plan.whole[2]]
                if name < 0:
                    return BAD
                container = plan.heads[min(name, words)]
                stack[depth - 3] = first
                stack[depth - 1] = container * words
            depth -= 4
            where, base, behind = container, stack[depth + 1], stack[depth + 3]


added: Any = entry(add)

# --- Lines.


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
def stamped(buffer, at, start, texts, found, first):
    """Keeps the time before an object; DONE, NEW for a shape that is not known, BAD for one without a time."""
    length, scratch, lines = start - at, found.scratch, found.lines
    if length > LONGEST // 8:
        return BAD
    for place in range(length):
        here = buffer[at + place]
        scratch[place] = 48 if here >= 48 and here <= 57 else here
    shape = number_of(texts, scratch, 0, length, True)
    lines[first + SHAPE] = shape
    if shape < 0:
        return BAD
    layout = texts.layouts[shape]
    if layout[0] != 1:
        return NEW if layout[0] == 0 else BAD
    for place in range(19):
        scratch[place] = buffer[at + layout[1] + place]
    zone = layout[3] - layout[2]
    for place in range(zone):
        scratch[19 + place] = buffer[at + layout[2] + place]
    lines[first + SECOND] = number_of(texts, scratch, 0, 19 + zone, True)
    lines[first + FRACTION] = digits(buffer, at + layout[4], at + layout[5], np.int64(0))
    return DONE if lines[first + SECOND] >= 0 else BAD


@entry
def walk(buffer, stop, plan, texts, found):
    """Walks over lines up to `stop`, which is behind the end of one; why it stopped."""
    state, lines, slots = found.state, found.lines, plan.whole[0]
    if texts.used[0] == 0:  # the keys are the first texts
        for key in range(plan.actions.shape[1]):
            number_of(texts, plan.words, WIDTH * key + 1, WIDTH * key + plan.lengths[key] - 2, True)
    at, guess = state[0], state[3]
    reason = DONE
    while at < stop:
        first, begun = state[1] * slots, state[2]
        if (
            first + slots > len(lines)
            or 2 * CELLS * begun > len(found.items)
            or texts.used[0] + 512 > len(texts.entries)
            or texts.used[1] + 16 * LONGEST > len(texts.letters)
        ):
            reason = FULL
            break
        for slot in range(first, first + slots):
            lines[slot] = UNSET
        lines[first + BEGIN] = at
        start = at + guess
        if start >= stop or same(buffer, start, plan.start, 0) < plan.whole[3]:
            start = at
            while byte(buffer, start) != 123 or same(buffer, start, plan.start, 0) < plan.whole[3]:
                if byte(buffer, start) == 10:
                    start = np.int64(BAD)
                    break
                start += 1
        end = np.int64(BAD)
        if start >= 0:
            how = stamped(buffer, at, start, texts, found, first)
            if how == NEW:
                state[3] = start - at
                state[0] = at
                return NEW
            if how == DONE:
                guess = start - at
                end = walked(buffer, start, plan, texts, found, first)
                if end >= 0:
                    end = tail_end(buffer, end)
        lines[first + USUAL] = end >= 0
        if end < 0:
            state[2] = begun
            end = line_end(buffer, at)
        at = end
        state[1] += 1
    state[0], state[3] = at, guess
    return reason
