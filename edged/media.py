"""Files behind `media://` URLs: stored, served, bounded, expired.

One directory a user (`DATA_PATH/<user>/media`), a file and a small description
each. A medium is its caller's or the owner's. What `put` returned is on disk.
"""

from __future__ import annotations

import binascii
import os

import msgspec

from edged import log
from edged.clock import Clock
from edged.errors import NotFoundError, StoreError, TooLargeError
from edged.store import make_directory, sync_directory, unlink, write_atomic

SCHEME = "media://"


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
    """The store of one data directory. Loop thread only."""

    def __init__(self, data: str, clock: Clock, bounds: Bounds | None = None) -> None:
        self._data = data
        self._clock = clock
        self._bounds = bounds or Bounds()
        self._index: dict[str, dict[str, Medium]] = {}

    def put(self, user: str, data: bytes, mime_type: str, name: str) -> str:
        """Store bytes; returns their `media://` URL.

        Raises:
            TooLargeError: over the size of one item.
            StoreError: the disk does not take it.
        """
        if len(data) > self._bounds.item_max:
            limit = self._bounds.item_max >> 20
            raise TooLargeError(f"a medium of {len(data)} bytes is over the limit of {limit} MiB")
        index = self._of(user)
        self._expire(user, len(data))
        directory = self._directory(user)
        make_directory(directory)
        medium = Medium(
            binascii.hexlify(os.urandom(16)).decode(), user, mime_type, name, len(data), self._clock.now()
        )
        # The description comes last: a file without one is a stray of a crash.
        write_atomic(os.path.join(directory, medium.id), data)
        write_atomic(os.path.join(directory, f"{medium.id}.json"), msgspec.json.encode(medium))
        index[medium.id] = medium
        return SCHEME + medium.id

    def get(self, user: str, reference: str, *, owner: bool = False) -> Medium:
        """Find a medium by id or URL.

        Raises:
            NotFoundError: none, expired, or another user's.
        """
        key = reference.removeprefix(SCHEME)
        users = self._users() if owner else [user]
        for name in users:
            medium = self._of(name).get(key)
            if medium and self._clock.now() - medium.created <= self._bounds.age_max_s:
                return medium
        raise NotFoundError(f"no medium {key!r}: it expired or was never yours")

    def path(self, medium: Medium) -> str:
        """The file of a medium."""
        return os.path.join(self._directory(medium.user), medium.id)

    def keep(self, user: str, data: bytes, mime_type: str, name: str) -> str:
        """`put` for results: an empty string when it cannot be stored."""
        try:
            return self.put(user, data, mime_type, name)
        except (StoreError, TooLargeError) as error:
            log.warning(f"media: {error}")
            return ""

    def _directory(self, user: str) -> str:
        return os.path.join(self._data, user, "media")

    def _users(self) -> list[str]:
        try:
            names = os.listdir(self._data)
        except OSError:
            return []
        return [n for n in names if os.path.isdir(self._directory(n))]

    def _of(self, user: str) -> dict[str, Medium]:
        index = self._index.get(user)
        if index is None:
            index = self._index[user] = self._load(user)
        return index

    def _load(self, user: str) -> dict[str, Medium]:
        directory = self._directory(user)
        try:
            names = set(os.listdir(directory))
        except OSError:
            return {}
        found: list[Medium] = []
        for name in sorted(names):
            stem = name.removesuffix(".json")
            if name != stem and stem in names:
                try:
                    with open(os.path.join(directory, name), "rb") as file:
                        found.append(msgspec.json.decode(file.read(), type=Medium))
                    continue
                except (OSError, msgspec.DecodeError) as error:
                    log.warning(f"media: {directory}/{name} is broken ({error}): removed")
            elif f"{name}.json" in names:
                continue
            unlink(os.path.join(directory, name))
        return {m.id: m for m in sorted(found, key=lambda m: m.created)}

    def _expire(self, user: str, room: int) -> None:
        """Drop what is old, then the oldest, until `room` bytes fit."""
        index = self._of(user)
        bounds = self._bounds
        total = sum(m.size for m in index.values())
        oldest_kept = self._clock.now() - bounds.age_max_s
        dropped = False
        for medium in list(index.values()):
            over = total + room > bounds.total_max or len(index) >= bounds.count_max
            if medium.created >= oldest_kept and not over:
                break
            total -= medium.size
            del index[medium.id]
            dropped = True
            unlink(self.path(medium) + ".json")
            unlink(self.path(medium))
        if dropped:
            sync_directory(self._directory(user))
