"""Unpacks archives of strangers: zip and gzipped tar.

Laws: every member is looked at before the first byte is written, and one that is wrong
refuses the whole; no link, device or encrypted member is unpacked; what is unpacked is
bounded by what comes out and not by what is declared; no header makes the library take
more than `HEADERS_MAX` of memory at once. Blocking calls.

Source: PKWARE APPNOTE 6.3.10; POSIX pax, tar(5).
"""

from __future__ import annotations

import gzip
import io
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from edged.errors import RemoteProtocolError
from edged.skills import names
from edged.skills.stage import FILE_MAX, FILES_MAX, LOCK, TOTAL_MAX, Stage

HEADERS_MAX = 1 << 20
"""Bytes that the library may read for headers at once."""

RATIO_MAX = 200
RATIO_FROM = 1 << 20
"""Bytes from which on the ratio counts: a small file of zeros is no bomb."""

SCANNED_MAX = 100_000
"""Members of a tar, most of which may be none of ours: a whole repository."""

SCANNED_BYTES_MAX = 512 << 20
_CHUNK = 64 << 10
_IGNORED = frozenset({LOCK, ".git", "__pycache__", "__MACOSX", ".DS_Store"})
"""Names that are no part of a skill."""


def refused(reason: str) -> RemoteProtocolError:
    """The error of an archive that is not unpacked."""
    return RemoteProtocolError(f"the archive is refused: {reason}")


class Member(NamedTuple):
    """One file of an archive: its name, whether it is a program, and where it is."""

    path: str
    run: bool
    info: Any


def is_ignored(parts: tuple[str, ...]) -> bool:
    """Whether a path is none of a skill's."""
    return any(part in _IGNORED for part in parts)


def unpack(file: BinaryIO, kind: str, stage: Stage, inside: str = "") -> None:
    """Unpack a skill.

    Args:
        file: seekable.
        kind: `zip` or `tar`, the latter gzipped.
        stage: to be filled.
        inside: the skill's directory in a tar that has one directory around all;
            empty: where the only SKILL.md is.

    Raises:
        RemoteProtocolError: it is broken, or refused.
        OSError: it cannot be written.
    """
    try:
        if kind == "zip":
            _unpack_zip(file, stage)
        else:
            _unpack_tar(file, stage, inside)
    except (
        zipfile.BadZipFile,
        tarfile.TarError,
        zlib.error,
        EOFError,
        gzip.BadGzipFile,
        NotImplementedError,
        UnicodeError,
        ValueError,
    ) as error:
        if isinstance(error, RemoteProtocolError):
            raise
        raise refused(f"it is broken: {names.line(str(error), 200)}") from None


def root_of(paths: list[tuple[str, ...]]) -> tuple[str, ...]:
    """The directory that is the skill: the only one at the top with a SKILL.md.

    Raises:
        RemoteProtocolError: there is none.
    """
    found = [p[:-1] for p in paths if p[-1].lower() == "skill.md" and len(p) <= 2]
    for root in sorted(found, key=len):
        if all(p[: len(root)] == root for p in paths):
            return root
    raise refused("it has no SKILL.md at its top")


class _Headers(io.RawIOBase):
    """A file that is read in small pieces only: a header that is larger is an attack."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._size = file.seek(0, io.SEEK_END)
        file.seek(0)

    def read(self, size: int | None = -1) -> bytes:
        """At most `HEADERS_MAX`.

        Raises:
            RemoteProtocolError: more is asked for.
        """
        wanted = self._size - self._file.tell() if size is None or size < 0 else size
        if wanted > HEADERS_MAX:
            raise refused(f"its directory is over {HEADERS_MAX >> 20} MiB")
        return self._file.read(wanted)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True


# zip ------------------------------------------------------------------------------------------


def _unpack_zip(file: BinaryIO, stage: Stage) -> None:
    packed = file.seek(0, io.SEEK_END)
    with zipfile.ZipFile(_Headers(file)) as archive:
        members = [m for m in map(_zip_member, archive.infolist()) if m is not None]
        if len(members) > FILES_MAX:
            raise refused(f"more than {FILES_MAX} files")
        declared = sum(m.info.file_size for m in members)
        _check_ratio(packed, declared)
        if declared > TOTAL_MAX:
            raise refused(f"it unpacks to over {TOTAL_MAX >> 20} MiB")
        paths = [names.member(m.path) for m in members]
        kept = [(p, m) for p, m in zip(paths, members, strict=True) if not is_ignored(p)]
        root = root_of([p for p, _ in kept])
        for parts, member in kept:
            with archive.open(member.info) as content:
                path = "/".join(parts[len(root) :])
                stage.add(path, _pieces(content), run=member.run)


def _zip_member(info: zipfile.ZipInfo) -> Member | None:
    """One member; None for a directory.

    Raises:
        RemoteProtocolError: it is refused.
    """
    path = _zip_name(info)
    shown = repr(path[:200])
    mode = info.external_attr >> 16
    kind = stat.S_IFMT(mode)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise refused(f"{shown} is a link or a device")
    if info.flag_bits & 0x1:
        raise refused(f"{shown} is encrypted")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise refused(f"{shown} is packed in a way that is not unpacked here")
    parts = names.member(path)
    if path.endswith("/") or kind == stat.S_IFDIR:
        if info.file_size:
            raise refused(f"{shown} is a directory with content")
        return None
    if info.file_size > FILE_MAX and not is_ignored(parts):
        raise refused(f"{shown} is over {FILE_MAX >> 20} MiB")
    return Member("/".join(parts), bool(mode & stat.S_IXUSR), info)


def _zip_name(info: zipfile.ZipInfo) -> str:
    """The name as it was meant: many tools write UTF-8 and do not say so.

    Raises:
        RemoteProtocolError: nobody knows what is meant.
    """
    name = info.orig_filename
    if "\0" in name:
        raise refused("a name has a zero byte in it")
    if info.flag_bits & 0x800 or name.isascii():
        return name
    try:
        return name.encode("cp437").decode("utf-8")
    except UnicodeError:
        raise refused(f"{name[:200]!r} is in no encoding that is known") from None


def _check_ratio(packed: int, unpacked: int) -> None:
    if unpacked > RATIO_FROM and unpacked > RATIO_MAX * max(packed, 1):
        raise refused(f"it unpacks to over {RATIO_MAX} times its size")


def _pieces(content: Any) -> Iterator[bytes]:
    while piece := content.read(_CHUNK):
        yield piece


# tar ------------------------------------------------------------------------------------------


class _Unpacked(io.RawIOBase):
    """A gzipped stream, counted: as a whole, and by what each header may take."""

    def __init__(self, file: BinaryIO) -> None:
        file.seek(0)
        self._stream = gzip.GzipFile(fileobj=file, mode="rb")
        self._total = 0
        self.left = HEADERS_MAX

    def read(self, size: int | None = -1) -> bytes:
        """The next bytes.

        Raises:
            RemoteProtocolError: it is more than a header may be, or than all may be.
        """
        data = self._stream.read(min(size, _CHUNK) if size is not None and size > 0 else _CHUNK)
        self._total += len(data)
        self.left -= len(data)
        if self.left < 0:
            raise refused(f"a header is over {HEADERS_MAX >> 20} MiB")
        if self._total > SCANNED_BYTES_MAX:
            raise refused(f"it unpacks to over {SCANNED_BYTES_MAX >> 20} MiB")
        return data


def _members(file: BinaryIO) -> Iterator[tuple[tarfile.TarInfo, Iterator[bytes]]]:
    """Each member with its content; what is not read of it is passed over."""
    source = _Unpacked(file)
    with tarfile.open(fileobj=source, mode="r|", errorlevel=2) as archive:
        for _ in range(SCANNED_MAX):
            source.left = HEADERS_MAX
            info = archive.next()
            # It would keep every header that there was.
            archive.members = []  # type: ignore[attr-defined]  # it is a list of them
            if info is None:
                return
            content = archive.extractfile(info) if info.isreg() else None
            source.left = SCANNED_BYTES_MAX
            pieces = _pieces(content) if content is not None else iter(())
            yield info, pieces
            for _rest in pieces:
                pass
        raise refused(f"more than {SCANNED_MAX} members")


def _unpack_tar(file: BinaryIO, stage: Stage, inside: str) -> None:
    root = _tar_root(file, inside)
    _check_tar(file, root)
    for info, content in _members(file):
        parts = _inner(info, root)
        if parts and not is_ignored(parts) and info.isreg():
            stage.add("/".join(parts), content, run=bool(info.mode & stat.S_IXUSR))


def _check_tar(file: BinaryIO, root: tuple[str, ...]) -> None:
    """Look at each member of the skill.

    Raises:
        RemoteProtocolError: one is refused, or all together are.
    """
    packed = file.seek(0, io.SEEK_END)
    seen: set[str] = set()
    declared = 0
    for info, _ in _members(file):
        parts = _inner(info, root)
        if not parts or is_ignored(parts):
            continue
        shown = repr(info.name[:200])
        path = "/".join(names.member("/".join(parts)))
        if info.isdir():
            continue
        if not info.isreg() or info.issparse():
            raise refused(f"{shown} is a link, a device or has holes")
        if info.size > FILE_MAX:
            raise refused(f"{shown} is over {FILE_MAX >> 20} MiB")
        if names.key(path) in seen:
            raise refused(f"{shown} is there twice, or in another case too")
        seen.add(names.key(path))
        declared += info.size
        if len(seen) > FILES_MAX or declared > TOTAL_MAX:
            raise refused(f"more than {FILES_MAX} files or {TOTAL_MAX >> 20} MiB")
    _check_ratio(packed, declared)


def _tar_root(file: BinaryIO, inside: str) -> tuple[str, ...]:
    """The skill's directory in a tar.

    Raises:
        RemoteProtocolError: there is none, or a path leads out of the archive.
    """
    if inside:
        below = () if inside == "." else names.member(inside)
        for info, _ in _members(file):
            return (_split(info)[0], *below)
        raise refused("it is empty")
    paths = []
    for info, _ in _members(file):
        parts = _split(info)
        if parts != (".",):
            names.member("/".join(parts))
            # A directory is no SKILL.md, whatever its name.
            paths += [parts if info.isreg() else (*parts, "")] if not is_ignored(parts) else []
    return root_of(paths)


def _split(info: tarfile.TarInfo) -> tuple[str, ...]:
    """The components of a member's path as they are."""
    name = info.name
    while name.startswith("./"):
        name = name[2:]
    return tuple((name or ".").split("/"))


def _inner(info: tarfile.TarInfo, root: tuple[str, ...]) -> tuple[str, ...] | None:
    """A member's path below the skill's directory; None where it is elsewhere."""
    parts = _split(info)
    if parts[: len(root)] != root or parts == (".",):
        return None
    return parts[len(root) :]
