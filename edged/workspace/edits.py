"""Edits of a text: one passage for another, its line ends kept, and the diff of it.

Pure. Works on bytes, so that what is not touched stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

CONTEXT = 3
"""Lines around a change, as in diff -u."""

SHOWN_MAX = 5
"""Places that are named where a passage occurs too often."""

PLACES_MAX = 100_000
"""Replacements of one edit."""

DIFF_LINES = 500
"""Lines up to which a changed region is compared line by line."""

REGION_LINES = 20_000
"""Lines of a changed region up to which it is shown."""


class Edit(NamedTuple):
    """An edited text.

    Attributes:
        data: all of it.
        places: where the old passage stood, in the old text.
        old: the passage, with the line ends of the text.
        new: what stands there now.
    """

    data: bytes
    places: list[int]
    old: bytes
    new: bytes


class EditError(ValueError):
    """A passage that cannot be replaced; says why and what to do."""


def replace(data: bytes, old: bytes, new: bytes, *, every: bool, limit: int) -> Edit:
    """Replace a passage that occurs once, or each one.

    In a text whose lines all end with CR LF the passages may be given with LF.

    Args:
        data: the text.
        old: the passage.
        new: what is to stand there.
        every: it may occur more than once.
        limit: bytes that the new text may have.

    Raises:
        EditError: it does not occur, or more than once, or the text would be too long.
    """
    if b"\r\n" in data and data.count(b"\n") == data.count(b"\r\n"):
        old, new = _with_crlf(old), _with_crlf(new)
    count, first = data.count(old), data.find(old)
    if not count:
        raise EditError(f"old_text does not occur in it{_near(data, old)}")
    if not every and data.find(old, first + 1) >= 0:
        raise EditError(_too_often(data, old))
    # Before it is made: many short passages by a long one are gigabytes.
    size = len(data) + count * (len(new) - len(old))
    if size > limit:
        raise EditError(f"it would have {size} bytes: edits end at {limit >> 20} MiB")
    if count > PLACES_MAX:
        raise EditError(f"old_text occurs {count} times, over {PLACES_MAX}: give a longer one")
    return Edit(data.replace(old, new), _places(data, old), old, new)


def _with_crlf(text: bytes) -> bytes:
    return re.sub(rb"(?<!\r)\n", b"\r\n", text)


def _places(data: bytes, old: bytes) -> list[int]:
    found, at = [], data.find(old)
    while at >= 0:
        found.append(at)
        at = data.find(old, at + len(old))
    return found


def _too_often(data: bytes, old: bytes) -> str:
    numbers, at = [], data.find(old)
    while at >= 0:
        numbers.append(data.count(b"\n", 0, at) + 1)
        if len(numbers) > SHOWN_MAX:
            break
        at = data.find(old, at + 1)
    shown = ", ".join(map(str, numbers[:SHOWN_MAX])) + (" …" if len(numbers) > SHOWN_MAX else "")
    total = max(data.count(old), 2)
    return (
        f"old_text occurs {total} times (lines {shown}): give more of the text around it, or "
        "replace_all=true"
    )


def _near(data: bytes, old: bytes) -> str:
    """A word on a passage that differs in white space alone."""
    words = old.split()
    if not words or len(old) > 10_000:
        return ""
    # Both with single spaces, so that one search finds it: a pattern would try each place anew.
    spaced = b" ".join(data.split())
    at = spaced.find(b" ".join(words))
    if at < 0:
        return ": read the file and copy the passage exactly"
    before = spaced.count(b" ", 0, at)
    found = next(islice(re.finditer(rb"\S+", data), before, None))
    number = data.count(b"\n", 0, found.start()) + 1
    return f": a passage that differs in white space alone is at line {number}; copy it exactly"


def diff(before: bytes, edit: Edit, name: str) -> str:
    """The unified diff of an edit; compares no more than the lines around each place.

    Source: GNU diffutils, "Detailed Description of Unified Format".
    """
    out = [f"--- {name}", f"+++ {name}"]
    shift = 0
    for region in _regions(before, edit):
        start, head = _back(before, region.begin)
        stop, tail = _forward(before, region.end)
        part = before[start:stop]
        changed = part.replace(edit.old, edit.new)
        counts = _count(part), _count(changed)
        first = region.first - head
        out.append(f"@@ -{_span(first, counts[0])} +{_span(first + shift, counts[1])} @@")
        if max(counts) > REGION_LINES:
            out.append("\\ Too long to be shown")
        else:
            out += _body(_split(part), _split(changed), head, tail)
        shift += counts[1] - counts[0]
    return "\n".join(out)


def _body(old: list[bytes], new: list[bytes], head: int, tail: int) -> list[str]:
    return [
        *_marked(" ", old[:head]),
        *_compared(old[head : len(old) - tail], new[head : len(new) - tail]),
        *_marked(" ", old[len(old) - tail :]),
    ]


def _span(start: int, count: int) -> str:
    # An empty range is named by the line before it.
    first = start + 1 if count else start
    return str(first) if count == 1 else f"{first},{count}"


class _Region(NamedTuple):
    """Whole lines that change: numbers of the first and the last from 0, and their bytes."""

    first: int
    last: int
    begin: int
    end: int


def _regions(before: bytes, edit: Edit) -> list[_Region]:
    """The lines that change; those near each other as one region."""
    regions: list[_Region] = []
    line = at = 0
    inner = edit.old.count(b"\n")
    for place in edit.places:
        line += before.count(b"\n", at, place)
        at, end = place, place + len(edit.old)
        last = line + inner
        if edit.old.endswith(b"\n") and edit.new.endswith(b"\n"):
            last -= 1
        else:
            # The line after the passage may become a part of one that stands there now.
            end = before.find(b"\n", end) + 1 or len(before)
        if regions and line <= regions[-1].last + 2 * CONTEXT + 1:
            known = regions[-1]
            regions[-1] = known._replace(last=max(last, known.last), end=max(end, known.end))
        else:
            regions.append(_Region(line, last, before.rfind(b"\n", 0, place) + 1, end))
    return regions


def _back(data: bytes, at: int) -> tuple[int, int]:
    """Where the context before a line begins, and how many lines it has."""
    count = 0
    while at and count < CONTEXT:
        at = data.rfind(b"\n", 0, at - 1) + 1
        count += 1
    return at, count


def _forward(data: bytes, at: int) -> tuple[int, int]:
    count = 0
    while at < len(data) and count < CONTEXT:
        at = data.find(b"\n", at) + 1 or len(data)
        count += 1
    return at, count


def _count(data: bytes) -> int:
    return data.count(b"\n") + bool(data and not data.endswith(b"\n"))


def _compared(old: Sequence[bytes], new: Sequence[bytes]) -> list[str]:
    if len(old) + len(new) > DIFF_LINES:
        return [*_marked("-", old), *_marked("+", new)]
    from difflib import SequenceMatcher  # noqa: PLC0415  only for an edit

    out: list[str] = []
    for act, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if act == "equal":
            out += _marked(" ", old[i1:i2])
        else:
            out += _marked("-", old[i1:i2]) + _marked("+", new[j1:j2])
    return out


def _split(data: bytes) -> list[bytes]:
    """Lines with their ends; only LF ends one."""
    rows = [row + b"\n" for row in data.split(b"\n")]
    last = rows.pop()[:-1]
    return [*rows, last] if last else rows


def _marked(sign: str, rows: Sequence[bytes]) -> list[str]:
    out = []
    for row in rows:
        out.append(sign + row.removesuffix(b"\n").decode("utf-8", "replace"))
        if not row.endswith(b"\n"):
            out.append("\\ No newline at end of file")
    return out
