"""Messages that wait, on disk: a file each, and the one that goes with it.

What `add` returned from survives a power cut; the description is written last and
removed first, so that a file without one is a stray of a crash. A broken description is
set aside. Any thread, one at a time.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

import msgspec

from edged import log
from edged.errors import StoreError, TooLargeError
from edged.messages import Message
from edged.store import failed, make_directory, sync_directory, unlink, write_all, write_atomic

GIVEN_UP_KEPT = 100
"""Messages that were given up and are kept for the owner, without their files."""

PART = 1 << 20
"""Bytes that are copied at a time."""

_NAME = re.compile(r"([0-9]{12})-([0-9a-f]{16})\.(json|data)")
_OURS = re.compile(r"[0-9]{12}-[0-9a-f]{16}\.(json|data)(\.new)?")


class Entry(NamedTuple):
    """One that waits: its place in the order, and its bytes on disk."""

    order: int
    message: Message
    size: int


class GivenUp(msgspec.Struct, frozen=True):
    """A message that was not delivered, and why."""

    message: Message
    reason: str
    time: float


class Spool:
    """The directory of one outbox."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._given_up = os.path.join(directory, "given-up")

    def data(self, order: int, name: str) -> str:
        """Where the file of a message lies."""
        return self._path(order, name, "data")

    def _path(self, order: int, name: str, kind: str) -> str:
        return os.path.join(self._directory, f"{order:012d}-{name}.{kind}")

    def load(self) -> list[Entry]:
        """What waits, in order; strays are removed.

        Raises:
            StoreError: the directory cannot be read.
        """
        try:
            names = {n for n in os.listdir(self._directory) if _OURS.fullmatch(n)}
        except FileNotFoundError:
            return []
        except OSError as error:
            raise failed("read", self._directory, error) from error
        found = [entry for name in sorted(names) if (entry := self._read(name)) is not None]
        kept = {f"{entry.order:012d}-{entry.message.id}" for entry in found}
        for name in names:
            if name.endswith(".new") or (name.endswith(".data") and name[:-5] not in kept):
                # A crash came between it and its description, or the other way round.
                self._drop_stray(name, names)
        return found

    def _read(self, name: str) -> Entry | None:
        match = _NAME.fullmatch(name)
        if match is None or match[3] != "json":
            return None
        path = os.path.join(self._directory, name)
        try:
            with open(path, "rb") as file:
                raw = file.read()
            message = msgspec.json.decode(raw, type=Message)
            if message.id != match[2]:
                raise msgspec.DecodeError("it is another one's")
            size = len(raw)
            if message.file is not None:
                there = os.stat(self.data(int(match[1]), message.id)).st_size
                if there != message.file.size:
                    raise msgspec.DecodeError("its file is not whole")
                size += there
        except FileNotFoundError:
            self._set_aside(path, "its file is gone")
            return None
        except (msgspec.DecodeError, RecursionError) as error:
            self._set_aside(path, str(error))
            return None
        except OSError as error:
            # Not sent in this life, and there in the next.
            log.error(f"{failed('read', path, error)}: the message waits")
            return None
        return Entry(int(match[1]), message, size)

    def _set_aside(self, path: str, reason: str) -> None:
        try:
            os.rename(path, f"{path}.broken")
        except OSError as error:
            log.error(f"{failed('set aside the broken', path, error)}")
            return
        log.error(f"{path} was broken ({reason}): kept as {path}.broken and not sent")

    def _drop_stray(self, name: str, names: set[str]) -> None:
        stem = name.removesuffix(".data")
        aside = os.path.join(self._directory, f"{stem}.json.broken")
        if name.endswith(".data") and (f"{stem}.json" in names or os.path.lexists(aside)):
            # Its description cannot be read, or was set aside: it is kept beside it.
            return
        unlink(os.path.join(self._directory, name))

    def add(self, order: int, message: Message, fd: int, limit: int) -> Entry:
        """Store a message and a copy of its file.

        Args:
            order: its place.
            message: with the name and type of its file.
            fd: the file, open to be read; -1 for none.
            limit: bytes that the file may have.

        Raises:
            TooLargeError: the file is larger.
            StoreError: the disk does not take it; nothing is left.
        """
        make_directory(self._directory)
        data = self.data(order, message.id)
        try:
            if fd >= 0 and message.file is not None:
                size = _copy(fd, data, limit, message.file.name)
                file = msgspec.structs.replace(message.file, size=size)
                message = msgspec.structs.replace(message, file=file)
            size = self._write(order, message)
        except BaseException:
            unlink(self._path(order, message.id, "json"))
            unlink(data)
            raise
        return Entry(order, message, size + (message.file.size if message.file else 0))

    def progress(self, order: int, message: Message) -> None:
        """Store how far a delivery has come.

        Raises:
            StoreError: it is not stored.
        """
        self._write(order, message)

    def _write(self, order: int, message: Message) -> int:
        raw = msgspec.json.encode(message)
        write_atomic(self._path(order, message.id, "json"), raw)
        return len(raw)

    def remove(self, order: int, message: Message) -> None:
        """Forget a message that was delivered.

        Raises:
            StoreError: it may be there again after a power cut.
        """
        path = self._path(order, message.id, "json")
        try:
            os.unlink(path)
            sync_directory(self._directory)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise failed("remove", path, error) from error
        finally:
            if message.file is not None and not os.path.exists(path):
                unlink(self.data(order, message.id))

    def kept(self) -> int:
        """Messages that were given up and are kept, of earlier lives too."""
        try:
            return len(os.listdir(self._given_up))
        except OSError:
            return 0

    def give_up(self, order: int, message: Message, reason: str, now: float) -> None:
        """Keep a message apart that nobody took; the oldest of those make room.

        Raises:
            StoreError: as `remove`.
        """
        try:
            make_directory(self._given_up)
            # The order begins anew where nothing waited: the oldest is known by its time.
            kept = os.path.join(self._given_up, f"{int(now):012d}-{message.id}.json")
            write_atomic(kept, msgspec.json.encode(GivenUp(message, reason, now)))
            for name in sorted(os.listdir(self._given_up))[:-GIVEN_UP_KEPT]:
                unlink(os.path.join(self._given_up, name))
        except StoreError as error:
            # A full disk: the log and the event have it, and the room is needed.
            log.error(f"{error}: the message that was given up is not kept")
        self.remove(order, message)


def _copy(source: int, path: str, limit: int, name: str) -> int:
    """Copy what is left of an open file; returns its size.

    Raises:
        TooLargeError, StoreError: as `Spool.add`.
    """
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            size = 0
            while part := os.read(source, PART):
                size += len(part)
                if size > limit:
                    raise TooLargeError(
                        f"{name} is over {limit} bytes, the most that the channel takes: "
                        "`max_file` of the channel in edged.yaml"
                    )
                write_all(fd, part)
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise failed("copy a file to", path, error) from error
    return size
