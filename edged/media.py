"""Files behind `media://` URLs: stored, served, bounded, expired.

One directory a user (`DATA_PATH/<user>/media`), a file and a small description
each. A medium is its caller's or the owner's. What `put` returned is on disk.
Any thread: results are stored off the loop.
"""

from __future__ import annotations

import binascii
import os
import re
import threading

import msgspec

from edged import log
from edged.clock import Clock
from edged.errors import NotFoundError, StoreError, TooLargeError
from edged.identity import Caller, is_user
from edged.store import failed, make_directory, unlink, write_atomic

SCHEME = "media://"

_OURS = re.compile(r"[0-9a-f]{32}(\.json)?(\.new)?")
"""Names that this store gives; whatever else lies there is another's."""


class Medium(msgspec.Struct, frozen=True):
    """One stored file; `size` in bytes, `created` in seconds since 1970."""

    id: str
    user: str
    mime_type: str
    name: str
    size: int
    created: float


class Bounds(msgspec.Struct, frozen=True):
    """How much one user's media may take; sizes in bytes, age in seconds."""

    item_max: int = 32 << 20
    total_max: int = 128 << 20
    count_max: int = 1_000
    age_max_s: float = 86_400.0


class Media:
    """The store of one data directory; the lock guards the index, never a write."""

    def __init__(self, data: str, clock: Clock, bounds: Bounds | None = None) -> None:
        self._data = data
        self._clock = clock
        self._bounds = bounds or Bounds()
        self._index: dict[str, dict[str, Medium]] = {}
        self._writing: set[str] = set()
        self._lock = threading.Lock()
        self._failing = False

    def put(self, user: str, data: bytes, mime_type: str, name: str) -> str:
        """Store bytes; returns their `media://` URL.

        Raises:
            TooLargeError: over the size of one item.
            StoreError: the disk does not take it; nothing is left of it.
        """
        limit = min(self._bounds.item_max, self._bounds.total_max)
        if len(data) > limit:
            raise TooLargeError(f"a medium of {len(data)} bytes is over the limit of {limit}")
        key = binascii.hexlify(os.urandom(16)).decode()
        medium = Medium(key, user, mime_type, name, len(data), self._clock.now())
        with self._lock:
            self._expire(user, len(data))
            # In the index before it is on disk: two threads must not take the same room.
            self._of(user)[key] = medium
            self._writing.add(key)
        try:
            directory = self._directory(user)
            make_directory(directory)
            # The description comes last: a file without one is a stray of a crash.
            write_atomic(self.path(medium), data)
            write_atomic(self.path(medium) + ".json", msgspec.json.encode(medium))
        except BaseException:
            with self._lock:
                self._drop(medium)
            raise
        finally:
            self._writing.discard(key)
        return SCHEME + key

    def get(self, user: str, reference: str, *, owner: bool = False) -> Medium:
        """Find a medium by id or URL.

        Args:
            user: who asks.
            reference: `media://<id>` or the id.
            owner: whether those of other users may be found.

        Raises:
            NotFoundError: none, expired, or another user's.
        """
        key = reference.removeprefix(SCHEME)
        with self._lock:
            for name in self._users() if owner else [user]:
                medium = self._of(name).get(key)
                if medium is None or key in self._writing:
                    continue
                if self._is_old(medium):
                    self._drop(medium)
                else:
                    return medium
        raise NotFoundError(f"no medium {key[:64]!r}: it expired or was never yours")

    def rows(self, user: str) -> list[Medium]:
        """A user's media, the oldest first."""
        with self._lock:
            return [
                medium
                for medium in self._of(user).values()
                if medium.id not in self._writing and not self._is_old(medium)
            ]

    def file(self, caller: Caller, reference: str) -> str:
        """The file of a medium that a caller may have.

        Raises:
            NotFoundError: as `get`.
        """
        return self.path(self.get(caller.user, reference, owner=caller.is_owner))

    def path(self, medium: Medium) -> str:
        """The file of a medium."""
        return os.path.join(self._directory(medium.user), medium.id)

    def read(self, medium: Medium, offset: int, count: int) -> bytes:
        """At most `count` bytes of a medium from `offset`.

        Raises:
            StoreError: the file cannot be read.
        """
        try:
            with open(self.path(medium), "rb") as file:
                file.seek(max(offset, 0))
                return file.read(count)
        except OSError as error:
            raise failed("read", self.path(medium), error) from error

    def keep(self, user: str, data: bytes, mime_type: str, name: str) -> str:
        """`put` for results: an empty string when it cannot be stored."""
        try:
            uri = self.put(user, data, mime_type, name)
        except TooLargeError as error:
            log.warning(f"media: {error}")
            return ""
        except StoreError as error:
            if not self._failing:
                log.error(f"media: {error}: nothing is kept")
            self._failing = True
            return ""
        if self._failing:
            log.info("media: the disk takes files again")
        self._failing = False
        return uri

    def _directory(self, user: str) -> str:
        return os.path.join(self._data, user, "media")

    def _users(self) -> list[str]:
        try:
            names = os.listdir(self._data)
        except OSError:
            return []
        # The daemon's own directories are no users: a tool may have any name.
        return [n for n in names if is_user(n) and os.path.isdir(self._directory(n))]

    def _of(self, user: str) -> dict[str, Medium]:
        index = self._index.get(user)
        if index is None:
            index = self._index[user] = self._load(user)
        return index

    def _load(self, user: str) -> dict[str, Medium]:
        """The media of a user on disk; what a crash left half done is removed."""
        directory = self._directory(user)
        try:
            names = {n for n in os.listdir(directory) if _OURS.fullmatch(n)}
        except OSError:
            return {}
        found: list[Medium] = []
        for name in names:
            stem = name.removesuffix(".json")
            if name == stem and f"{name}.json" in names:
                # It goes with its description.
                continue
            path = os.path.join(directory, name)
            if name != stem and stem in names:
                try:
                    found.append(_described(path, stem, user))
                except OSError as error:
                    log.warning(f"media: {path} cannot be read ({error.strerror}): left alone")
            else:
                unlink(path)
        return {m.id: m for m in sorted(found, key=lambda m: m.created)}

    def _expire(self, user: str, room: int) -> None:
        """Drop what is old, then the oldest, until `room` bytes and one item fit."""
        index = self._of(user)
        for medium in list(index.values()):
            if self._is_old(medium) and medium.id not in self._writing:
                self._drop(medium)
        total = sum(m.size for m in index.values())
        for medium in list(index.values()):
            if total + room <= self._bounds.total_max and len(index) < self._bounds.count_max:
                break
            if medium.id not in self._writing:
                total -= medium.size
                self._drop(medium)

    def _is_old(self, medium: Medium) -> bool:
        return self._clock.now() - medium.created > self._bounds.age_max_s

    def _drop(self, medium: Medium) -> None:
        self._of(medium.user).pop(medium.id, None)
        # No fsync: whatever a power cut brings back is dropped again.
        unlink(self.path(medium) + ".json")
        unlink(self.path(medium))


def _described(path: str, key: str, user: str) -> Medium:
    """What the description at `path` says; made anew from the file itself where it is broken.

    Raises:
        OSError: one of the two cannot be read.
    """
    there = os.stat(path.removesuffix(".json"))
    with open(path, "rb") as file:
        data = file.read()
    try:
        medium = msgspec.json.decode(data, type=Medium)
    except (msgspec.DecodeError, RecursionError) as error:
        log.warning(f"media: {path} is broken ({error}): the medium is kept without its name")
        return Medium(key, user, "application/octet-stream", "data", there.st_size, there.st_mtime)
    return msgspec.structs.replace(medium, id=key, user=user, size=there.st_size)
