"""Who holds what: each place on the board belongs to one holder at a time.

Places are named as tools name them: `i2c-1`, `i2c-1/0x76`, `spi0.0`, `ttyUSB0`,
`GPIO17`. Whoever holds a bus holds what is on it.
"""

from __future__ import annotations

from collections.abc import Sequence

from edged.errors import BusyError, ConfigError


class Claims:
    """The claims of one board; loop thread only."""

    def __init__(self) -> None:
        self._holders: dict[str, str] = {}

    def take(self, place: str, holder: str) -> None:
        """Claims a place.

        Raises:
            BusyError: it, or the bus that it is on, is claimed; the message names the holder.
        """
        self.check(place)
        self._holders[place] = holder

    def free(self, place: str) -> None:
        """Gives a place back."""
        self._holders.pop(place, None)

    def holder(self, place: str) -> str:
        """Who claimed this very place; empty when nobody did."""
        return self._holders.get(place, "")

    def check(self, place: str, holder: str = "") -> None:
        """Refuses a place that someone else than `holder` holds, or holds the bus of.

        Raises:
            BusyError: the message names who does.
        """
        for one in reached(place):
            found = self._holders.get(one, holder)
            if found != holder:
                raise BusyError(f"{one} is in use by {found}")


def reached(place: str) -> list[str]:
    """A place, all that it is on, and what answers at its addresses before a multiplexer."""
    if not place:
        return []
    bus, *behind = place.split("/")
    whole = ["/".join([bus, *behind[:count]]) for count in range(len(behind) + 1)]
    if bus.startswith("i2c-"):
        whole += [f"{bus}/{address}" for address in behind[::2]]
    return whole[::-1]


def refuse_twice(places: Sequence[tuple[str, str]]) -> None:
    """Each place belongs to one entry of the configuration.

    Args:
        places: the entry's key path, and a place of it; an empty one is nobody's.

    Raises:
        ConfigError: two entries have the same; or one is behind a multiplexer at an
            address that answers before it too, so that both would be spoken to.
    """
    holders: dict[str, str] = {}
    for key, place in places:
        if place in holders:
            twice = "named twice" if holders[place] == key else f"taken by {holders[place]}"
            raise ConfigError(f"{place} is {twice}", key=key)
        if place:
            holders[place] = key
    for key, place in places:
        bus, *behind = place.split("/")
        if bus.startswith("i2c-") and len(behind) > 1:
            for address in behind[::2]:
                holder = holders.get(f"{bus}/{address}", key)
                if holder != key:
                    reason = f"behind a multiplexer: {holder} has {bus}/{address} before it"
                    raise ConfigError(reason, key=key)
