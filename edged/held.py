"""How much of what comes from outside is held in memory at once, over all who send it.

One `Room` bounds all its `Share`s together, and none of them can take it all: each may
grow to half of what the others leave.
"""

from __future__ import annotations

_TRIM_THRESHOLD_OPTION, _MMAP_THRESHOLD_OPTION = -1, -3
"""`M_TRIM_THRESHOLD` and `M_MMAP_THRESHOLD` of mallopt(3)."""

_MMAP_THRESHOLD = 1 << 20
"""Above what asyncio reads at once (256 KiB): a block that is mapped anew each time is slow."""


def return_freed() -> None:
    """Let large blocks go back to the kernel when they are freed.

    The C library keeps ever larger ones for itself else, once it has seen them (mallopt(3),
    `M_MMAP_THRESHOLD`, on the dynamic threshold). Does nothing where it has no such setting.
    """
    import ctypes  # noqa: PLC0415  heavy, and not for a daemon that handles nothing large

    setting = getattr(ctypes.CDLL(None), "mallopt", None)
    if setting is not None:
        setting(_MMAP_THRESHOLD_OPTION, _MMAP_THRESHOLD)
        setting(_TRIM_THRESHOLD_OPTION, 2 * _MMAP_THRESHOLD)


class Room:
    """Bytes that all shares may hold together.

    Attributes:
        total: the bound.
        used: what they hold.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.used = 0


class Share:
    """What one of them holds; `size` in bytes."""

    __slots__ = ("_room", "size")

    def __init__(self, room: Room) -> None:
        self._room = room
        self.size = 0

    def take(self, count: int) -> int:
        """Hold more; how many of `count` bytes there is room for."""
        room = self._room
        left = (room.total - room.used + self.size) // 2 - self.size
        granted = max(0, min(count, left))
        self.size += granted
        room.used += granted
        return granted

    def give(self, count: int) -> None:
        """Hold less."""
        count = min(count, self.size)
        self.size -= count
        self._room.used -= count

    def release(self) -> None:
        """Hold nothing."""
        self.give(self.size)
