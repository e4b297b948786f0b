"""What the doctor finds."""

from __future__ import annotations

from typing import Literal

import msgspec

Level = Literal["ok", "note", "warning", "fault"]


class Finding(msgspec.Struct, frozen=True):
    """One line of the report; `remedy` is empty where nothing is to be done."""

    check: str
    level: Level
    text: str
    remedy: str = ""
