"""Edits of a text: one passage for another, its line ends kept, and the diff of it.

Pure. Works on bytes, so that what is not touched stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

CONTEXT = 3
"""Lines around a change, as in diff -u."""

SHOWN_MAX = 5
"""Places that are named where a passage occurs too often."""

DIFF_LINES = 500
"""Lines up to which a changed region is compared line by line."""


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


def replace(data: bytes, old: bytes, new: bytes, *, every: bool) -> Edit:
    """Replace a passage that occurs once, or each one.

    In a text whose lines all end with CR LF the passages may be given with LF.

    Raises:
        EditError: it does not occur, or more than once.
    """
    if b"\r\n" in data and data.count(b"\n") == data.count(b"\r\n"):
        old, new = _with_crlf(old), _with_crlf(new)
    places = _places(data, old)
    if not places:
        raise EditError(f"old_text does not occur in it{_near(data, old)}")
    if not every and (len(places) > 1 or data.find(old, places[0] + 1) >= 0):
        raise EditError(_too_often(data, old))
    return Edit(data.replace(old, new), places, old, new)


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
    form = rb"\s+".join(map(re.escape, words))
    found = re.search(form, data)
    if found is None:
        return ": read the file and copy the passage exactly"
    number = data.count(b"\n", 0, found.start()) + 1
    return f": a passage that differs in white space alone is at line {number}; copy it exactly"


def diff(before: bytes, edit: Edit, name: str) -> str:
    """The unified diff of an edit; compares no more than the lines around each place.

    Source: GNU diffutils, "Detailed Description of Unified Format".
    """
    rows = _split(before)
    out = [f"--- {name}", f"+++ {name}"]
    shift = 0
    for first, last in _regions(before, edit):
        start = max(0, first - CONTEXT)
        end = min(len(rows), last + 1 + CONTEXT)
        old = rows[start:end]
        new = _split(b"".join(old).replace(edit.old, edit.new))
        head, tail = first - start, end - last - 1
        body = [
            *_marked(" ", old[:head]),
            *_compared(old[head : len(old) - tail], new[head : len(new) - tail]),
            *_marked(" ", old[len(old) - tail :]),
        ]
        spans = _span(start, len(old)), _span(start + shift, len(new))
        out += [f"@@ -{spans[0]} +{spans[1]} @@", *body]
        shift += len(new) - len(old)
    return "\n".join(out)


def _span(start: int, count: int) -> str:
    # An empty range is named by the line before it.
    first = start + 1 if count else start
    return str(first) if count == 1 else f"{first},{count}"


def _regions(before: bytes, edit: Edit) -> list[tuple[int, int]]:
    """The lines that change, first and last, from 0; those near each other as one."""
    regions: list[tuple[int, int]] = []
    line = at = 0
    for place in edit.places:
        line += before.count(b"\n", at, place)
        at = place
        last = line + edit.old.count(b"\n")
        if edit.old.endswith(b"\n") and not _joins(edit):
            last -= 1
        if regions and line <= regions[-1][1] + 2 * CONTEXT + 1:
            regions[-1] = regions[-1][0], max(last, regions[-1][1])
        else:
            regions.append((line, last))
    return regions


def _joins(edit: Edit) -> bool:
    """Whether the line after the passage becomes a part of what stands there now."""
    return bool(edit.new) and not edit.new.endswith(b"\n")


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
