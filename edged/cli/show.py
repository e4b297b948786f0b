"""What people see: columns within the terminal, colour where it helps, safe text.

Text of tools and files is not trusted: no control character of it reaches a terminal.
"""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from edged.wording import one_line, safe

_COLOURS = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}
_GAP = "  "
_BELOW = "    "
_COLUMN_MAX = 40


def width() -> int:
    """Columns of the terminal; 80 where there is none."""
    named = os.environ.get("COLUMNS", "")
    if named.isdigit() and int(named):
        return max(int(named), 20)
    try:
        return max(os.get_terminal_size(sys.stdout.fileno()).columns, 20)
    except (OSError, ValueError):
        return 80


def is_terminal() -> bool:
    """Whether standard output is one."""
    return sys.stdout.isatty()


def coloured() -> bool:
    """Whether colour may be used (no-color.org)."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return is_terminal() and not plain


def paint(text: str, colour: str) -> str:
    """The text in a colour, where colour may be used."""
    if not text or not colour or not coloured():
        return text
    return f"\033[{_COLOURS[colour]}m{text}\033[0m"


def out(text: str) -> None:
    """Print one line."""
    sys.stdout.write(f"{text}\n")


def json(value: Any) -> None:
    """Print one JSON document."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value)).decode() + "\n")


def json_line(value: Any) -> None:
    """Print one JSON line at once."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def cells(text: str) -> int:
    """Columns that a terminal takes for a text."""
    if text.isascii():
        return len(text)
    return sum(_cells(c) for c in text)


def _cells(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def cut(text: str, columns: int) -> str:
    """The text within so many columns, its rest as an ellipsis."""
    if cells(text) <= columns:
        return text
    room = columns - 1
    kept = ""
    for char in text:
        room -= _cells(char)
        if room < 0:
            break
        kept += char
    return kept.rstrip() + "…"


class Columns:
    """Aligned columns; the last one takes the room that is left.

    It is cut to it, and others give way to it, on a terminal only: what goes to a
    file or to `grep` is whole.
    """

    def __init__(
        self,
        header: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        whole: Collection[str] = (),
    ) -> None:
        """Fit the columns to some rows.

        Args:
            header: names of the columns.
            rows: text of any content; more of the same kind may follow.
            whole: columns that do not give way.
        """
        self._header = header
        fitted = zip(*(header, *rows), strict=True)
        self._widths = [min(max(cells(one_line(c)) for c in col), _COLUMN_MAX) for col in fitted]
        room = width() - len(_GAP) * (len(header) - 1)
        # The widest give way until the last one has what it needs, or a quarter of the line;
        # never the first.
        inner = [i for i in range(1, len(header) - 1) if is_terminal() and header[i] not in whole]
        most = max(room * 3 // 4, room - self._widths[-1])
        while sum(self._widths[:-1]) > most and any(self._widths[i] > 4 for i in inner):
            self._widths[max(inner, key=self._widths.__getitem__)] -= 1
        self._widths[-1] = max(room - sum(self._widths[:-1]), 10)

    def header(self) -> str:
        """The line of names."""
        return paint(self.line(self._header), "bold")

    def line(self, row: Sequence[str], colours: Sequence[str] = ()) -> str:
        """One row; `colours` name one for each column."""
        parts = []
        for index, text in enumerate(row):
            room = self._widths[index]
            is_last = index == len(row) - 1
            shown = one_line(text)
            if not is_last or is_terminal():
                shown = cut(shown, room)
            pad = "" if is_last else " " * (room - cells(shown))
            colour = colours[index] if index < len(colours) else ""
            parts.append(paint(shown, colour) + pad)
        return _GAP.join(parts).rstrip()

    def lines(self, row: Sequence[str], colours: Sequence[str] = ()) -> list[str]:
        """One row with the whole text of its last column.

        On a terminal it takes as many lines as that needs, else one.
        """
        if not is_terminal():
            return [self.line(row, colours)]
        plain, tail = self.line((*row[:-1], "")), wrapped(one_line(row[-1]), self._widths[-1])
        indent = sum(self._widths[:-1]) + len(_GAP) * (len(row) - 1)
        pad = " " * (indent - cells(plain))
        head = self.line((*row[:-1], ""), colours)
        return [f"{head}{pad}{tail[0]}".rstrip(), *(" " * indent + line for line in tail[1:])]


def wrapped(text: str, columns: int) -> list[str]:
    """One line of text as several, broken at spaces; at least one."""
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and cells(lines[-1]) + 1 + cells(word) > columns:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".lstrip()
    return lines


def below(text: str) -> None:
    """Print what belongs to the row above, indented; nothing for no text.

    On a terminal it takes as many lines as it needs, else one.
    """
    if not text:
        return
    line = one_line(text)
    for part in fitted(line, width() - len(_BELOW)) if is_terminal() else [line]:
        out(f"{_BELOW}{part}")


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, whole: bool = False) -> None:
    """Print rows under their names; `whole` cuts nothing off the last column."""
    columns = Columns(header, rows)
    out(columns.header())
    for row in rows:
        for line in columns.lines(row) if whole else (columns.line(row),):
            out(line)


def facts(rows: Iterable[tuple[str, str]]) -> None:
    """Print names and values, one a line, values aligned; several lines of one value too.

    A longer line than the terminal has is broken at spaces.
    """
    kept = [(name, value) for name, value in rows if value]
    column = max((len(name) for name, _ in kept), default=0)
    room = width() - column - len(_GAP)
    for name, value in kept:
        first, *rest = (part for line in safe(value).split("\n") for part in fitted(line, room))
        out(f"{paint(f'{name:{column}}', 'bold')}{_GAP}{first}")
        for line in rest:
            out(" " * (column + len(_GAP)) + line)


def prose(text: str, indent: str = "") -> None:
    """Print text of several lines, without control characters.

    On a terminal long lines are broken at spaces.
    """
    plain = safe(text)
    if is_terminal():
        plain = folded(plain, width() - len(indent))
    for line in plain.split("\n"):
        out(f"{indent}{line}".rstrip())


def folded(text: str, columns: int) -> str:
    """Text of several lines, the long ones broken at spaces, as far in as they begin."""
    lines = []
    for line in text.split("\n"):
        inner = line.lstrip(" ")
        pad = " " * min(len(line) - len(inner), columns // 2)
        is_long = cells(line) > columns
        lines += [pad + part for part in wrapped(inner, columns - len(pad))] if is_long else [line]
    return "\n".join(lines)


def fitted(line: str, columns: int) -> list[str]:
    """A line, broken at spaces only where it is too long."""
    return [line] if cells(line) <= columns else wrapped(line, columns)


def duration(seconds: float) -> str:
    """A time as people say it, in its two largest units."""
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    whole = int(seconds)
    first = next((at for at, (_, length) in enumerate(units) if whole >= length), len(units) - 1)
    parts: list[str] = []
    for unit, length in units[first : first + 2]:
        count, whole = divmod(whole, length)
        if count or not parts:
            parts.append(f"{count} {unit}")
    return " ".join(parts)


def size(count: float) -> str:
    """Bytes as people write them."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} GiB"
