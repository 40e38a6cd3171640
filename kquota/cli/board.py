"""A table on a terminal that keys sort, filter and walk through: the screen of `kquota top`."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from kquota.cli import keys
from kquota.cli.text import Column, Layout, columns_that_fit, shared_out

if TYPE_CHECKING:
    from rich.console import Console, JustifyMethod, RenderableType
    from rich.table import Table
    from rich.text import Text

_HELP: Final = "q quit  space pause  s sort  r reverse  / filter  a all  up, down, Enter explain"
_HELP_FILTER: Final = "Enter keeps the filter, Esc removes it"
_HELP_EXPLAINED: Final = "Esc goes back  up, down scroll  space pause  q quit"
_MARK: Final = ">"
_NAME: Final = 22
"""Other columns are left out before a text is cut off to fewer characters, unless its column says to how many."""


class Row(NamedTuple):
    """A row of the table, and the thing that it is of."""

    of: Hashable
    cells: Sequence[object]
    style: str

    def has(self, words: str) -> bool:
        """Whether the words are in one of its cells."""
        return any(words.casefold() in str(cell).casefold() for cell in self.cells)


@dataclass(frozen=True, slots=True)
class Choices:
    """What the keys have chosen so far."""

    sort: int | None = None
    """The column that rows are sorted by; None: as they come."""
    reverse: bool = False
    """Whether the greatest comes first."""
    filter: str = ""
    typing: bool = False
    """Whether characters go to the filter."""
    paused: bool = False
    everything: bool = False
    selected: Hashable = None
    """The thing whose row is marked."""
    explained: bool = False
    """Whether the marked row is explained."""
    skipped: int = 0
    """Lines of the explanation above the screen."""
    over: bool = False


class Board:
    """The table's columns, what the keys have chosen, and the screen that follows."""

    def __init__(self, columns: Sequence[Column], wanted: Layout, *, everything: bool) -> None:
        self._columns, self._headings = columns, wanted.headings
        self._names = [column.heading for column in columns]
        self.choices = Choices(
            sort=wanted.place(self._names), reverse=wanted.sort_by.startswith("-"), everything=everything
        )
        self._page = 1
        self._left_out: Sequence[str] = ()
        """The columns for which the screen is too narrow."""

    def rows(self, rows: Iterable[Row]) -> list[Row]:
        """The rows that the filter lets through, in the order that was chosen."""
        wanted, kept = self.choices, [row for row in rows if row.has(self.choices.filter)]
        if wanted.sort is None:
            return kept[::-1] if wanted.reverse else kept
        order = Layout(sort_by=("-" if wanted.reverse else "") + self._names[wanted.sort])
        cells = ((*row.cells, row) for row in kept)
        return [row for *_, row in order.sorted(self._names, cells) if isinstance(row, Row)]

    def selected(self, rows: Sequence[Row]) -> int:
        """The place of the marked row; the first where its thing is gone."""
        return next((place for place, row in enumerate(rows) if row.of == self.choices.selected), 0)

    def press(self, key: str, rows: Sequence[Row]) -> None:
        """Has a key do its work; `rows` are the rows that are shown."""
        now = self.choices
        if key == keys.END:
            self.choices = replace(now, over=True)
        elif now.typing:
            self.choices = _typed(now, key)
        elif key == "q":
            self.choices = replace(now, over=True)
        elif key in (" ", "p"):
            self.choices = replace(now, paused=not now.paused)
        elif now.explained:
            self.choices = _explained(now, key, self._page)
        elif key == "escape":
            self.choices = replace(now, filter="", sort=None, reverse=False)
        elif key == "s":
            places = [*range(len(self._names)), None]
            sort = places[places.index(now.sort) + 1] if now.sort is not None else 0
            self.choices = replace(now, sort=sort, reverse=sort is not None and self._columns[sort].number)
        elif key == "r":
            self.choices = replace(now, reverse=not now.reverse)
        elif key == "/":
            self.choices = replace(now, typing=True)
        elif key == "a":
            self.choices = replace(now, everything=not now.everything)
        elif rows:
            self._walk(key, rows)

    def _walk(self, key: str, rows: Sequence[Row]) -> None:
        place, last = self.selected(rows), len(rows) - 1
        steps = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -self._page, "page down": self._page}
        steps |= {"home": -place, "end": last - place}
        if key in steps:
            place = min(max(place + steps[key], 0), last)
        self.choices = replace(self.choices, selected=rows[place].of, explained=key == "enter")

    def screen(
        self, screen: Console, notes: Sequence[Text], rows: Sequence[Row], explanation: Sequence[str] | None
    ) -> RenderableType:
        """The whole screen: notes, the rows around the marked one or its explanation, and the keys."""
        from rich.console import Group
        from rich.text import Text

        above = [line for note in notes for line in note.wrap(screen, screen.width)]
        left = max(screen.height - len(above) - 2, 1)
        body: Sequence[RenderableType]
        if explanation is not None:
            lines = [line for text in explanation for line in Text(text).wrap(screen, screen.width)]
            self._page = max(left, 1)
            skipped = min(self.choices.skipped, max(len(lines) - left, 0))
            self.choices = replace(self.choices, skipped=skipped)
            body = lines[skipped : skipped + left]
        else:
            self._page = max(left - self._headings, 1)
            place = self.selected(rows)
            first = max(min(place - self._page // 2, len(rows) - self._page), 0)
            body = [self._table(screen, rows[first : first + self._page], place - first)] if rows else []
        state, help_text = Text(self._state(len(rows)), style="bold"), Text(self._help, style="dim")
        for line in (state, help_text):
            line.truncate(screen.width, overflow="ellipsis")
        return Group(*above, *body, state, help_text)

    @property
    def _help(self) -> str:
        if self.choices.typing:
            return _HELP_FILTER
        return _HELP_EXPLAINED if self.choices.explained else _HELP

    def _state(self, many: int) -> str:
        """What the keys have chosen, in a line."""
        now = self.choices
        parts = ["PAUSED"] if now.paused else []
        if now.typing or now.filter:
            parts.append(f"filter: {now.filter}{'_' if now.typing else ''}, {many} shown")
        if now.sort is not None:
            parts.append(f"sorted by {self._names[now.sort]}{', greatest first' if now.reverse else ''}")
        elif now.reverse:
            parts.append("reversed")
        if self._left_out and not now.explained:
            parts.append(f"left out: {', '.join(self._left_out)}")
        return "  ".join(parts)

    def _table(self, screen: Console, rows: Sequence[Row], marked: int) -> Table:
        """Rows of a line each: cells that do not fit are cut off, as Enter shows them whole."""
        from rich.cells import cell_len
        from rich.table import Table
        from rich.text import Text

        cells = [[str(cell) for cell in row.cells] for row in rows]
        widest = [
            max([cell_len(column.heading) if self._headings else 0, *(cell_len(row[place]) for row in cells)])
            for place, column in enumerate(self._columns)
        ]
        width = screen.width - len(_MARK) - 2
        least = [
            size if column.number else min(size, (column.whole and column.least) or _NAME)
            for column, size in zip(self._columns, widest, strict=True)
        ]
        kept, fit = columns_that_fit(self._columns, least, width, cells)
        self._left_out = [name for place, name in enumerate(self._names) if place not in kept]
        narrowest = [size if fit or column.number else 1 for column, size in zip(self._columns, least, strict=True)]
        widths = shared_out(kept, narrowest, widest, width)
        table = Table(box=None, pad_edge=False, header_style="bold", show_header=self._headings)
        table.add_column("", no_wrap=True, width=len(_MARK))
        for place in kept:
            column = self._columns[place]
            align: JustifyMethod = "right" if column.number else "left"
            table.add_column(column.heading, justify=align, no_wrap=True, overflow="ellipsis", width=widths[place])
        for number, (row, line) in enumerate(zip(rows, cells, strict=True)):
            mark = _MARK if number == marked else ""
            style = f"{row.style} reverse".strip() if mark else row.style
            table.add_row(mark, *(Text(line[place]) for place in kept), style=style)
        return table


def _typed(now: Choices, key: str) -> Choices:
    """The choices after a key that goes to the filter."""
    if key == "enter":
        return replace(now, typing=False)
    if key == "escape":
        return replace(now, typing=False, filter="")
    if key == "backspace":
        return replace(now, filter=now.filter[:-1])
    return replace(now, filter=now.filter + key) if len(key) == 1 else now


def _explained(now: Choices, key: str, page: int) -> Choices:
    """The choices after a key while a row is explained."""
    if key in ("escape", "enter", "backspace"):
        return replace(now, explained=False, skipped=0)
    steps = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -page, "page down": page, "home": -now.skipped}
    return replace(now, skipped=max(now.skipped + steps.get(key, 0), 0))
