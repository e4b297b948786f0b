"""Time zones by their names, and the machine's own.

Source: IANA time zone database, tzfile(5), localtime(5).
"""

from __future__ import annotations

import os
from datetime import UTC, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from edged import log
from edged.errors import Fault, InvalidArgumentsError

_LOCALTIME = "/etc/localtime"
_BELOW = "/zoneinfo/"


def zone(name: str, field: str = "tz") -> tzinfo:
    """The zone of that name; UTC is there also without a database.

    Args:
        name: such as Europe/Berlin.
        field: the input that it came from.

    Raises:
        InvalidArgumentsError: there is none.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        if name == "UTC":
            return UTC
        hint = "write one such as Europe/Berlin or UTC"
        if not _has_database():
            hint = "this machine has no time zone database: install tzdata"
        raise InvalidArgumentsError(
            [Fault(field, f"{name[:64]!r} is no time zone: {hint}")], "cron"
        ) from None


@lru_cache(maxsize=256)
def kept_zone(name: str) -> tzinfo:
    """The zone of a job that was added earlier: UTC where there is no such zone any more."""
    try:
        return zone(name)
    except InvalidArgumentsError as error:
        log.error(f"{error}: its jobs run by UTC")
        return UTC


def _has_database() -> bool:
    try:
        ZoneInfo("Europe/Berlin")
    except (ZoneInfoNotFoundError, OSError):
        return False
    return True


def system_zone() -> str:
    """The name of the machine's time zone: of TZ, else of /etc/localtime; UTC where neither is."""
    named = os.environ.get("TZ", "").removeprefix(":")
    path = named if named.startswith("/") else "" if named else os.path.realpath(_LOCALTIME)
    for name in (named, path.rpartition(_BELOW)[2] if _BELOW in path else "", _timezone_file()):
        if name and not name.startswith("/"):
            try:
                ZoneInfo(name)
            except (ZoneInfoNotFoundError, ValueError, OSError):
                continue
            return name
    return "UTC"


def _timezone_file() -> str:
    """What Debian keeps beside the link; a copied /etc/localtime has no name."""
    try:
        with open("/etc/timezone", encoding="utf-8") as file:
            return file.read(100).strip()
    except (OSError, UnicodeDecodeError):
        return ""
