"""A skill's files on their way in: written below a fresh directory, counted and hashed.

Laws: nothing but plain files and directories is ever made; a file is made once and its
name is no other's in another case; sizes are those of what was written, whatever was
declared; what was staged is on the disk before it is used. Blocking calls.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable

import msgspec

from edged.errors import RemoteProtocolError
from edged.skills import names
from edged.store import sync_directory, write_all

FILES_MAX = 2_000
FILE_MAX = 10 << 20
TOTAL_MAX = 50 << 20

LOCK = ".skill-lock.json"
"""In each skill's directory, so that it changes together with the files."""


class Lock(msgspec.Struct, frozen=True):
    """Where a skill came from, and what it was then.

    Attributes:
        registry: name in the configuration.
        reference: of the skill in it.
        version: that was installed.
        installed_at: RFC 3339.
        digest: of all files; `digest_of`.
        files: SHA-256 by path.
        pinned: the version was asked for: no update changes it by itself.
        lock_version: of this form.
    """

    registry: str
    reference: str
    version: str
    installed_at: str
    digest: str
    files: dict[str, str]
    pinned: bool = False
    lock_version: int = 1


def digest_of(files: dict[str, str]) -> str:
    """One digest of many: SHA-256 over lines `path:sha256`, sorted by code point."""
    lines = "\n".join(f"{path}:{files[path]}" for path in sorted(files))
    return hashlib.sha256(lines.encode()).hexdigest()


class Stage:
    """A directory that is filled, and used or dropped as a whole."""

    def __init__(self, path: str) -> None:
        """Make it.

        Args:
            path: where; its parent is there, it is not.

        Raises:
            OSError: it cannot be made.
        """
        os.mkdir(path, 0o700)
        self.path = path
        self.files: dict[str, str] = {}
        self.total = 0
        self._kinds: dict[str, bool] = {}

    def add(self, path: str, content: Iterable[bytes], *, run: bool = False) -> None:
        """Write one file.

        Args:
            path: relative, with slashes.
            content: in pieces.
            run: whether it is a program.

        Raises:
            RemoteProtocolError: it may not be there, or is too much.
            OSError: it cannot be written.
        """
        parts = names.member(path)
        path = "/".join(parts)
        self._claim(parts)
        if len(self.files) >= FILES_MAX:
            raise RemoteProtocolError(f"the archive is refused: more than {FILES_MAX} files")
        where = os.path.join(self.path, path)
        os.makedirs(os.path.dirname(where), exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(where, flags, 0o600)
        try:
            self.files[path] = self._write(fd, path, content)
            os.fchmod(fd, 0o755 if run else 0o644)
            os.fsync(fd)
        finally:
            os.close(fd)

    def _write(self, fd: int, path: str, content: Iterable[bytes]) -> str:
        digest, size = hashlib.sha256(), 0
        for piece in content:
            size += len(piece)
            self.total += len(piece)
            if size > FILE_MAX:
                limit = FILE_MAX >> 20
                raise RemoteProtocolError(f"the archive is refused: {path} is over {limit} MiB")
            if self.total > TOTAL_MAX:
                limit = TOTAL_MAX >> 20
                raise RemoteProtocolError(f"the archive is refused: it is over {limit} MiB")
            digest.update(piece)
            write_all(fd, piece)
        return digest.hexdigest()

    def _claim(self, parts: tuple[str, ...]) -> None:
        """A file's name is nobody else's, and its directories are no files."""
        for depth in range(1, len(parts) + 1):
            path, is_file = "/".join(parts[:depth]), depth == len(parts)
            key = names.key(path)
            known = self._kinds.get(key)
            if known is None:
                self._kinds[key] = is_file
                self._kinds[f"\0{path}"] = is_file
            elif is_file or known or f"\0{path}" not in self._kinds:
                raise RemoteProtocolError(
                    f"the archive is refused: {path!r} is there twice, or in another case too"
                )

    def forget(self, path: str) -> None:
        """Take a file out again.

        Raises:
            OSError: it cannot be.
        """
        os.unlink(os.path.join(self.path, path))
        del self.files[path]

    def seal(self, lock: Lock) -> None:
        """Write the lock, and bring everything to the disk.

        Raises:
            OSError: it cannot be.
        """
        where = os.path.join(self.path, LOCK)
        fd = os.open(where, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            write_all(fd, msgspec.json.format(msgspec.json.encode(lock)) + b"\n")
            os.fchmod(fd, 0o644)
            os.fsync(fd)
        finally:
            os.close(fd)
        for directory, _, _ in os.walk(self.path, topdown=False):
            os.chmod(directory, 0o755)  # noqa: S103  agents' sandboxes read it
            sync_directory(directory)
