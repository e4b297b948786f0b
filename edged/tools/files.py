"""`read_file`, `write_file`, `edit_file`, `append_file`, `list_dir`: the caller's files.

What may be reached is the workspace's to say (`edged.workspace`); here is what is read
and written there, in which parts, and how it is told.
"""

from __future__ import annotations

import binascii
import os
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from edged.clock import iso
from edged.errors import (
    EdgedError,
    Fault,
    InvalidArgumentsError,
    NotFoundError,
    StoreError,
    TooLargeError,
)
from edged.results import Result, Text
from edged.tool import READS, Context, Hints, tool
from edged.tools._turns import turn
from edged.workspace import pages

if TYPE_CHECKING:
    from edged.workspace import Route, Workspace
    from edged.workspace.opening import Way
    from edged.workspace.pages import Page, Read
    from edged.workspace.replace import Written

EDIT_MAX = 4 << 20
"""Bytes of a file that is edited: it is in memory, before and after."""

APPEND_MAX = 1 << 20
"""Bytes up to which a file is written anew by append_file, whole or not at all."""

LIST_MAX = 1_000
"""Entries of one answer of list_dir."""

LIST_TEXT_MAX = 50_000
"""Characters of one answer of list_dir."""

ENTRIES_MAX = 100_000
"""Entries of a directory that are sorted; of further ones only the number is told."""

LISTS_MAX = 64
"""Small directories whose lists are kept until they change."""

SETTLED_S = 3.0
"""A directory that changed less than this before it was read may change again and keep its
time: a FAT counts in steps of two seconds, the kernel's clock in ticks."""

SMALL_DIRECTORY = 64 << 10
"""Bytes of a directory that is listed without a thread."""

PATHS = {"file_path": "path", "file": "path", "filename": "path", "filepath": "path"}
"""Other words for `path`."""

Path = Annotated[
    str,
    Meta(
        description="Relative to the workspace, or /workspace/…, /officer/user/…; other paths "
        "need the owner's permission.",
        min_length=1,
    ),
]
Encoding = Annotated[
    Literal["text", "base64"], Meta(description="base64 for files that are no text.")
]

_Count = Annotated[int, Meta(ge=1)]


# Reading ----------------------------------------------------------------------------------


class ReadFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Inputs of `read_file`."""

    path: Annotated[str, Meta(description="As for the other tools, or media://…", min_length=1)]
    offset: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(description="First byte; next_offset of the answer before."),
    ] = None
    length: Annotated[_Count | None, Meta(description="Bytes, at most.")] = None
    start_line: Annotated[
        _Count | None, Meta(description="First line, from 1: reads by lines, numbered.")
    ] = None
    max_lines: Annotated[_Count | None, Meta(description="Lines, at most.")] = None
    mode: Annotated[
        Literal["bytes", "lines"] | None,
        Meta(description="lines: with their numbers; by itself where lines are asked for."),
    ] = None
    encoding: Encoding = "text"

    def __post_init__(self) -> None:
        by_line = self.start_line is not None or self.max_lines is not None
        by_byte = self.offset is not None or self.length is not None
        if by_line and (by_byte or self.mode == "bytes"):
            raise ValueError("start_line and max_lines go without offset, length and mode bytes")
        if self.mode == "lines" and by_byte:
            raise ValueError("offset and length go with mode bytes; lines have start_line")
        if self.encoding == "base64" and (by_line or self.mode == "lines"):
            raise ValueError("encoding base64 goes with mode bytes")

    @property
    def mode_or_none(self) -> str | None:
        """What the inputs say of the mode; None leaves it to the configuration."""
        if self.start_line is not None or self.max_lines is not None:
            return "lines"
        if self.offset is not None or self.length is not None or self.encoding == "base64":
            return "bytes"
        return self.mode


@tool(
    "read_file",
    label="Read a file",
    category="filesystem",
    hints=READS,
    cut=False,
    aliases={**PATHS, "limit": "length", "line": "start_line", "lines": "max_lines"},
)
def read_file(params: ReadFile, ctx: Context) -> Result | Awaitable[Result]:
    """Read a file, in parts where it is long; the answer says where the next part begins."""
    workspace: Workspace = ctx.services.workspace
    route = workspace.route(ctx.caller, ctx.caller.session, params.path, write=False)
    if route.place.names:
        raise _is_directory(route)
    reading = _Reading(params, workspace, route, ctx)
    if route.place.root and not reading.by_line:
        try:
            return reading.at_once()
        except BlockingIOError:
            pass
    return reading.on_a_thread()


class _Reading:
    """One read."""

    def __init__(self, params: ReadFile, workspace: Workspace, route: Route, ctx: Context) -> None:
        self._params, self._workspace, self._route, self._ctx = params, workspace, route, ctx
        mode = params.mode_or_none or workspace.settings.mode
        self.by_line = mode == "lines"

    def at_once(self) -> Result:
        """What is in the kernel's memory already.

        Raises:
            BlockingIOError: the disk has to be waited for.
        """
        params = self._params
        fd, found = self._workspace.way(self._ctx.caller, self._route).look(os.O_RDONLY)
        try:
            size = self._size(found)
            if params.mode_or_none is None and 0 < size <= min(
                self._workspace.read_max, len(_page_buffer)
            ):
                return self._whole(fd, size)
            return self._part(found, lambda offset, count: _cached(fd, offset, count, size))
        finally:
            os.close(fd)

    def _whole(self, fd: int, size: int) -> Result:
        """A small file at once: by the buffer that all of them share."""
        buffer = _page_buffer
        _read_cached(fd, memoryview(buffer)[:size], 0)
        kind = "binary data" if buffer.find(b"\0", 0, size) >= 0 else ""
        head = buffer[: min(size, pages.SNIFF)]
        self._refuse(pages.kind(head, head) or kind)
        return Result([Text(str(memoryview(buffer)[:size], "utf-8", "replace"))])

    async def on_a_thread(self) -> Result:
        workspace, route = self._workspace, self._route

        def work(stopped: Callable[[], bool]) -> Result:
            fd, found = workspace.way(self._ctx.caller, route).look(os.O_RDONLY)
            try:
                if self.by_line:
                    return self._lines(fd, found, stopped)
                return self._part(found, lambda offset, count: _pread(fd, offset, count))
            except OSError as error:
                if isinstance(error, EdgedError):
                    raise
                from edged.workspace.opening import fault  # noqa: PLC0415  loaded already

                raise fault(route.place.shown, error) from None
            finally:
                os.close(fd)

        async with _used(self._ctx, workspace, route):
            return await workspace.threads.run(work)

    def _part(self, there: os.stat_result, read: Read) -> Result:
        params, shown = self._params, self._route.place.shown
        size = self._size(there)
        offset = params.offset or 0
        length = min(params.length or self._workspace.read_max, self._workspace.read_max)
        if params.encoding == "base64":
            data = read(offset, length)
            end = offset + len(data)
            found = pages.Page(data, offset, end if end < size else None)
            text = binascii.b2a_base64(data, newline=False).decode()
        else:
            found = pages.page(read, offset, length)
            self._check_text(found.data, found.offset, read)
            text = found.data.decode("utf-8", "replace")
        if found.data and found.next is None and not found.offset:
            # All of it: there is nothing to say beside it.
            return Result([Text(text)])
        facts = {
            "path": shown,
            "size": max(size, found.offset + len(found.data)),
            "offset": found.offset,
            "length": len(found.data),
            "next_offset": found.next,
        }
        return _shown(text, _note_of_bytes(shown, found, size), facts)

    def _lines(self, fd: int, there: os.stat_result, stopped: Callable[[], bool]) -> Result:
        params, shown = self._params, self._route.place.shown
        size, first = self._size(there), params.start_line or 1

        def read(offset: int, count: int) -> bytes:
            return _pread(fd, offset, count)

        found = pages.lines(read, first, params.max_lines, self._workspace.read_max, stopped)
        if found is None:
            reason = f"{shown} has fewer than {first} lines"
            raise InvalidArgumentsError([Fault("start_line", reason)])
        self._check_text(b"\n".join(found.lines), found.offset, read)
        rows = [
            f"{first + index}|{line.decode('utf-8', 'replace')}"
            for index, line in enumerate(found.lines)
        ]
        last = first + len(found.lines) - 1
        facts = {
            "path": shown,
            "size": size,
            "first_line": first,
            "last_line": last,
            "next_line": None if found.next is None or found.is_cut else last + 1,
            "next_offset": found.next,
        }
        note = ""
        if not found.lines:
            note = f"[{shown} is empty]"
        elif found.is_cut:
            note = (
                f"[line {last} is not whole: read on with offset={found.next} of {size} bytes; "
                f"the next line is start_line={last + 1}]"
            )
        elif found.next is not None:
            note = f"[lines {first} to {last}: read on with start_line={last + 1}]"
        return _shown("\n".join(rows), note, facts)

    def _size(self, there: os.stat_result) -> int:
        if stat.S_ISDIR(there.st_mode):
            raise _is_directory(self._route)
        return there.st_size

    def _check_text(self, data: bytes | bytearray, offset: int, read: Read) -> None:
        """Refuse what is no text: it would fill a model's context with noise."""
        head = read(0, pages.HEAD) if offset else data[: pages.HEAD]
        self._refuse(pages.kind(head, data))

    def _refuse(self, kind: str) -> None:
        if kind:
            shown = self._route.place.shown
            reason = f"{shown} is {kind}, no text; encoding=base64 reads its bytes"
            raise InvalidArgumentsError([Fault("path", reason)])


def _note_of_bytes(shown: str, page: Page, size: int) -> str:
    if page.next is not None:
        last = page.offset + len(page.data) - 1
        return f"[bytes {page.offset} to {last} of {size}: read on with offset={page.next}]"
    if page.data:
        return f"[from byte {page.offset} to the end, {size} bytes]" if page.offset else ""
    if page.offset:
        return f"[offset {page.offset} is behind the end: {shown} has {size} bytes]"
    return f"[{shown} is empty]"


def _shown(text: str, note: str, facts: dict[str, Any] | None) -> Result:
    """Text as it is, and in a block of its own what there is to say about it."""
    content = [Text(part) for part in (text, note) if part]
    return Result([*content], structured=facts)


def _cached(fd: int, offset: int, count: int, size: int) -> bytearray:
    """`_pread` of what needs no disk (preadv2(2), RWF_NOWAIT).

    Raises:
        BlockingIOError: it needs it, or the file system cannot tell.
    """
    wanted = max(0, min(count, size - offset))
    if size and not wanted:
        return bytearray()
    data = bytearray(wanted or count)
    there = _read_cached(fd, data, offset, short=not size)
    del data[there:]
    return data


_page_buffer = bytearray(64 << 10)
"""For files that are read at once, on the loop: no other call is in the middle of it."""


def _read_cached(
    fd: int, into: bytearray | memoryview, offset: int, *, short: bool = False
) -> int:
    """Fill a buffer, or as much of it as there is where it may be `short`.

    Raises:
        BlockingIOError: see `_cached`.
    """
    try:
        there = os.preadv(fd, [into], offset, os.RWF_NOWAIT)
    except OSError:
        # A thread meets the same fault, and says it in words.
        raise BlockingIOError from None
    if there < len(into) and not short:
        raise BlockingIOError
    return there


def _pread(fd: int, offset: int, count: int) -> bytes:
    """So many bytes, fewer only at the end."""
    parts: list[bytes] = []
    while count > 0:
        part = os.pread(fd, count, offset)
        if not part:
            break
        parts.append(part)
        offset += len(part)
        count -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _is_directory(route: Route) -> InvalidArgumentsError:
    reason = f"{route.place.shown} is a directory: list_dir shows what is in it"
    return InvalidArgumentsError([Fault("path", reason)])


# Writing ----------------------------------------------------------------------------------


class WriteFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Inputs of `write_file`."""

    path: Path
    content: Annotated[str, Meta(description="All of it, written exactly so.")]
    overwrite: Annotated[
        bool, Meta(description="false: refuse where the file is there already.")
    ] = True
    encoding: Encoding = "text"


@tool(
    "write_file",
    label="Write a file",
    category="filesystem",
    hints=Hints(idempotent=True, open_world=False),
    aliases={**PATHS, "text": "content", "data": "content", "contents": "content"},
)
async def write_file(params: WriteFile, ctx: Context) -> Result:
    """Create a file or replace it whole; directories above it are made."""
    from edged.workspace.replace import replace  # noqa: PLC0415  ctypes is heavy

    data = _bytes(params.content, params.encoding)

    def work(way: Way, stopped: Callable[[], bool]) -> tuple[Written, Result]:
        written = replace(way, data, overwrite=params.overwrite, stopped=stopped)
        act = "created" if written.created else "replaced"
        return written, _told(way, written, f"{act} {way.shown}, {written.size} bytes")

    return await _change(ctx, params.path, len(data), work)


class AppendFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Inputs of `append_file`."""

    path: Path
    content: Annotated[str, Meta(description="What to add, exactly so; end a line yourself.")]
    encoding: Encoding = "text"


@tool(
    "append_file",
    label="Append to a file",
    category="filesystem",
    hints=Hints(destructive=False, open_world=False),
    aliases={**PATHS, "text": "content", "data": "content", "contents": "content"},
)
async def append_file(params: AppendFile, ctx: Context) -> Result:
    """Add to the end of a file, which is created where it is missing."""
    data = _bytes(params.content, params.encoding)

    def work(way: Way, stopped: Callable[[], bool]) -> tuple[Written, Result]:
        written = _appended(way, data, stopped)
        act = "created" if written.created else f"appended {len(data)} bytes to"
        return written, _told(way, written, f"{act} {way.shown}, {written.size} bytes")

    return await _change(ctx, params.path, len(data), work)


def _appended(way: Way, data: bytes, stopped: Callable[[], bool]) -> Written:
    from edged.workspace import replace as writing  # noqa: PLC0415  ctypes is heavy

    try:
        fd = way.open(os.O_RDONLY)
    except NotFoundError:
        return writing.replace(way, data, overwrite=False, stopped=stopped)
    try:
        found = os.fstat(fd)
        if stat.S_ISDIR(found.st_mode):
            raise _is_directory(way.route)
        if found.st_size > APPEND_MAX:
            return writing.append(way, data, stopped)
        before = _pread(fd, 0, found.st_size)
    finally:
        os.close(fd)
    return writing.replace(way, before + data, expected=found, stopped=stopped)


class EditFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Inputs of `edit_file`."""

    path: Path
    old_text: Annotated[
        str, Meta(description="A passage that occurs once, copied exactly.", min_length=1)
    ]
    new_text: Annotated[str, Meta(description="What is to stand there.")]
    replace_all: Annotated[bool, Meta(description="Replace it wherever it occurs.")] = False

    def __post_init__(self) -> None:
        if self.old_text == self.new_text:
            raise ValueError("old_text and new_text are the same: nothing would change")


@tool(
    "edit_file",
    label="Edit a file",
    category="filesystem",
    hints=Hints(open_world=False),
    aliases={
        **PATHS,
        **dict.fromkeys(("old_string", "oldText", "old_str", "search"), "old_text"),
        **dict.fromkeys(("new_string", "newText", "new_str", "replace"), "new_text"),
        "replaceAll": "replace_all",
    },
)
async def edit_file(params: EditFile, ctx: Context) -> Result:
    """Replace a passage of a text file by another; answers with the diff."""
    old, new = _bytes(params.old_text), _bytes(params.new_text)

    def work(way: Way, stopped: Callable[[], bool]) -> tuple[Written, Result]:
        every = params.replace_all
        written, count, diff = _edited(way, old, new, every=every, stopped=stopped)
        facts = {"path": way.shown, "bytes": written.size, "replacements": count}
        return written, Result([Text(diff)], structured=facts)

    return await _change(ctx, params.path, len(old) + len(new), work)


def _edited(
    way: Way,
    old: bytes,
    new: bytes,
    *,
    every: bool,
    stopped: Callable[[], bool],
) -> tuple[Written, int, str]:
    from edged.workspace import edits  # noqa: PLC0415  at the first edit
    from edged.workspace.replace import replace  # noqa: PLC0415  ctypes is heavy

    shown = way.shown
    fd = way.open(os.O_RDONLY)
    try:
        found = os.fstat(fd)
        if stat.S_ISDIR(found.st_mode):
            raise _is_directory(way.route)
        if found.st_size > EDIT_MAX:
            limit = EDIT_MAX >> 20
            raise TooLargeError(f"{shown} has {found.st_size} bytes: edits end at {limit} MiB")
        data = _pread(fd, 0, EDIT_MAX + 1)
    finally:
        os.close(fd)
    kind = pages.kind(data[: pages.HEAD], data)
    if kind:
        raise InvalidArgumentsError([Fault("path", f"{shown} is {kind}, no text to edit")])
    try:
        edit = edits.replace(data, old, new, every=every, limit=EDIT_MAX)
    except edits.EditError as error:
        raise InvalidArgumentsError([Fault("old_text", f"{shown}: {error}")]) from None
    diff = edits.diff(data, edit, shown)
    written = replace(way, edit.data, create=False, expected=found, stopped=stopped)
    return written, len(edit.places), diff


def _bytes(content: str, encoding: str = "text") -> bytes:
    if encoding == "text":
        return content.encode()
    try:
        return binascii.a2b_base64(content, strict_mode=True)
    except ValueError:
        reason = "is not base64: write A-Z, a-z, 0-9, + and /, filled up to fours with ="
        raise InvalidArgumentsError([Fault("content", reason)]) from None


def _told(way: Way, written: Written, text: str) -> Result:
    facts = {"path": way.shown, "bytes": written.size, "created": written.created}
    return Result([Text(text)], structured=facts)


@asynccontextmanager
async def _used(ctx: Context, workspace: Workspace, route: Route) -> AsyncIterator[None]:
    """A turn at the files, and the grant of the route used where something comes of it."""
    async with turn(ctx.services.board, "files", ctx.caller.who):
        workspace.use(route)
        try:
            yield
        except EdgedError:
            with suppress(StoreError):
                workspace.give_back(route)
            raise


async def _change(
    ctx: Context,
    path: str,
    size: int,
    work: Callable[[Way, Callable[[], bool]], tuple[Written, Result]],
) -> Result:
    """Change a file on a thread, one call after the other for one file.

    Args:
        ctx: of the call.
        path: as the caller names it.
        size: bytes that the call holds.
        work: changes it, until it is told to stop; what was written, and the answer.
    """
    workspace: Workspace = ctx.services.workspace
    route = workspace.route(ctx.caller, ctx.caller.session, path, write=True)
    way = workspace.way(ctx.caller, route)
    with workspace.changes.holding(size):
        async with workspace.changes.of(route.place.host), _used(ctx, workspace, route):
            written, result = await workspace.threads.run(lambda stopped: work(way, stopped))
            workspace.rebind(way, written.device, written.inode)
            return result


# Listing ----------------------------------------------------------------------------------


class ListDir(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Inputs of `list_dir`."""

    path: Path = "."
    details: Annotated[
        bool, Meta(description="Sizes and times of change too, also as structured entries.")
    ] = False
    offset: Annotated[
        int, Meta(ge=0, description="Entries to pass over; next_offset of the answer before.")
    ] = 0
    limit: Annotated[int, Meta(ge=1, le=LIST_MAX, description="Entries, at most.")] = LIST_MAX


class _Entry(msgspec.Struct, omit_defaults=True):
    """An entry as a program reads it; `size` in bytes, `modified` RFC 3339, UTC."""

    name: str
    type: Literal["file", "directory", "link", "special"]
    size: int | None = None
    modified: str | None = None
    target: str | None = None


@tool(
    "list_dir",
    label="List a directory",
    category="filesystem",
    hints=READS,
    cut=False,
    aliases={"directory": "path", "dir": "path", "folder": "path", "max_results": "limit"},
)
def list_dir(params: ListDir, ctx: Context) -> Result | Awaitable[Result]:
    """List what is in a directory, each with its type; with sizes and times where asked for."""
    workspace: Workspace = ctx.services.workspace
    route = workspace.route(ctx.caller, ctx.caller.session, params.path, write=False)
    if route.place.names:
        entries = [_Entry(name, "directory") for name in route.place.names]
        return _page(route, params, entries, len(entries))
    if route.place.root:
        fd, found = _opened_directory(workspace, ctx, route)
        try:
            if found.st_size <= SMALL_DIRECTORY:
                return _small(fd, found, route, params, ctx.services.clock.now())
        finally:
            os.close(fd)
    return _list_on_a_thread(params, ctx, workspace, route)


async def _list_on_a_thread(
    params: ListDir, ctx: Context, workspace: Workspace, route: Route
) -> Result:
    def work(stopped: Callable[[], bool]) -> Result:
        fd, _ = _opened_directory(workspace, ctx, route)
        try:
            return _listed(fd, route, params, stopped)
        finally:
            os.close(fd)

    async with _used(ctx, workspace, route):
        return await workspace.threads.run(work)


def _opened_directory(
    workspace: Workspace, ctx: Context, route: Route
) -> tuple[int, os.stat_result]:
    fd, found = workspace.way(ctx.caller, route).look(os.O_RDONLY)
    if stat.S_ISDIR(found.st_mode):
        return fd, found
    os.close(fd)
    reason = f"{route.place.shown} is a file: read_file shows what is in it"
    raise InvalidArgumentsError([Fault("path", reason)])


_lists: dict[tuple[int, int], tuple[int, str]] = {}
"""By device and inode: when a directory changed last, and its whole list as text."""


def _small(fd: int, found: os.stat_result, route: Route, params: ListDir, now: float) -> Result:
    """A list that is short enough for the loop; one that was read before is not read anew.

    Names and types change with the directory's own time (inode(7), mtime).
    """
    if params.details or params.offset or params.limit != LIST_MAX:
        return _listed(fd, route, params, lambda: False)
    key = found.st_dev, found.st_ino
    known = _lists.get(key)
    if known is not None and known[0] == found.st_mtime_ns:
        return Result([Text(known[1])])
    settled = found.st_mtime + SETTLED_S < now
    result = _listed(fd, route, params, lambda: False)
    if settled and result.structured is None:
        if len(_lists) >= LISTS_MAX:
            del _lists[next(iter(_lists))]
        only = result.content[0]
        assert isinstance(only, Text)  # noqa: S101  a list is one
        _lists[key] = found.st_mtime_ns, only.text
    return result


def _listed(fd: int, route: Route, params: ListDir, stopped: Callable[[], bool]) -> Result:
    kinds: dict[str, os.DirEntry[str]] = {}
    total = 0
    with os.scandir(fd) as entries:
        for entry in entries:
            total += 1
            if total <= ENTRIES_MAX:
                kinds[entry.name] = entry
            elif stopped():
                break
        names = sorted(kinds)[params.offset : params.offset + params.limit]
        rows = [_entry(fd, kinds[name], details=params.details) for name in names]
    return _page(route, params, rows, total)


def _entry(fd: int, entry: os.DirEntry[str], *, details: bool) -> _Entry:
    name = entry.name
    # A name may have line ends in it, or bytes that are no characters.
    made = _Entry(name if name.isprintable() else ascii(name), _type(entry))
    if made.type == "link":
        with suppress(OSError):
            target = os.readlink(name, dir_fd=fd)
            made.target = target if target.isprintable() else ascii(target)
    if details:
        with suppress(OSError):
            found = os.stat(name, dir_fd=fd, follow_symlinks=False)
            made.modified = iso(found.st_mtime)
            if made.type == "file":
                made.size = found.st_size
    return made


def _type(entry: os.DirEntry[str]) -> Literal["file", "directory", "link", "special"]:
    try:
        if entry.is_symlink():
            return "link"
        if entry.is_dir(follow_symlinks=False):
            return "directory"
        return "file" if entry.is_file(follow_symlinks=False) else "special"
    except OSError:
        # It went away meanwhile.
        return "special"


_WORDS = {"file": "FILE: ", "directory": "DIR:  ", "link": "LINK: ", "special": "SPECIAL: "}


def _line(entry: _Entry) -> str:
    line = _WORDS[entry.type] + entry.name
    if entry.target is not None:
        line += f" -> {entry.target}"
    if entry.modified is None:
        return line
    size = f"{entry.size} bytes, " if entry.size is not None else ""
    return f"{line} ({size}{entry.modified})"


def _page(route: Route, params: ListDir, entries: list[_Entry], total: int) -> Result:
    lines: list[str] = []
    room = LIST_TEXT_MAX
    for entry in entries:
        line = _line(entry)
        room -= len(line) + 1
        if room < 0 and lines:
            break
        lines.append(line)
    shown, end = route.place.shown, params.offset + len(lines)
    more = end if lines and end < min(total, ENTRIES_MAX) else None
    note = ""
    if more is not None:
        note = f"[{params.offset + 1} to {end} of {total} entries: list on with offset={more}]"
    elif not lines:
        note = f"[{shown} is empty]" if not total else f"[{shown} has {total} entries]"
    elif total > ENTRIES_MAX:
        note = f"[{total} entries: those after the first {ENTRIES_MAX} are left out]"
    facts: dict[str, Any] | None = None
    if params.details or note:
        facts = {"path": shown, "total": total, "next_offset": more}
    if facts is not None and params.details:
        facts["entries"] = [msgspec.to_builtins(entry) for entry in entries[: len(lines)]]
    return _shown("\n".join(lines), note, facts)


TOOLS = (read_file, write_file, edit_file, append_file, list_dir)
