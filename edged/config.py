"""The configuration: Structs of `edged.yaml`, where files lie, and how it is read.

A setting is one field of one Struct here; defaults, ranges, the documentation
and `edged config --explain` derive from it. The user's file is never written.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from edged.bus.settings import BoardConfig
from edged.identity import Role, is_user
from edged.units import duration_s, size_bytes

Duration = Annotated[str | int | float, Meta(description="seconds, or text such as 20ms, 60s, 1h")]
Size = Annotated[str | int, Meta(description="bytes, or text such as 64K, 256M, 1G")]
Channels = Annotated[
    list[str],
    Meta(description="channels whose callers may call it, or CHANNEL:CHAT; * is any"),
]

seconds = duration_s
size = size_bytes

_MIB = 1 << 20
_GIB = 1 << 30


def check_duration(name: str, value: str | float, low: float, high: float) -> None:
    """Raise for a field that is no duration of `low` to `high` seconds.

    Raises:
        ValueError: begins with the field's name, by which the reader of the file finds its line.
    """
    try:
        found = seconds(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if not low <= found <= high:
        raise ValueError(
            f"{name}: must be from {_written(low, _SPANS)} to {_written(high, _SPANS)}"
        )


_SPANS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_SIZES = (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10), (" bytes", 1))


def _written(value: float, units: tuple[tuple[str, int], ...]) -> str:
    """A bound as the file has it: 30d, 64K."""
    unit, length = next((one for one in units if value and value % one[1] == 0), units[-1])
    return f"{value / length:g}{unit}"


def check_channels(given: list[str]) -> None:
    """Raise for what names no channel; as `check_duration`."""
    for place, one in enumerate(given):
        if not re.fullmatch(r"\*|[^\s:*]+(:\S+)?", one):
            reason = f"{one[:60]!r} is neither a channel, CHANNEL:CHAT, nor *"
            raise ValueError(f"channels[{place}]: {reason}")


def check_size(name: str, value: str | int, low: int, high: int) -> None:
    """Raise for a field that is no size of `low` to `high` bytes; as `check_duration`."""
    try:
        found = size(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if not low <= found <= high:
        raise ValueError(
            f"{name}: must be from {_written(low, _SIZES)} to {_written(high, _SIZES)}"
        )


WEB = ("http://", "https://")


def fault_of_url(url: str, begins: tuple[str, ...] = WEB) -> str:
    """Why something is no address of a server; empty where it is, or where there is none.

    The address itself is not told: it may hold a password.
    """
    if not url:
        return ""
    if not url.startswith(begins):
        return f"must begin with {' or '.join(begins)}"
    from urllib.parse import urlsplit  # noqa: PLC0415  only where there is one

    try:
        parts = urlsplit(url)
        fits = bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
    if fits and all(char.isprintable() and char != " " for char in url):
        return ""
    return f"is no address such as {begins[0]}192.168.1.5:8080"


def check_url(name: str, url: str, begins: tuple[str, ...] = WEB) -> None:
    """Raise for a field that is no address of a server; as `check_duration`."""
    fault = fault_of_url(url, begins)
    if fault:
        raise ValueError(f"{name}: {fault}")


_DEVICE = r"[A-Za-z0-9_-][A-Za-z0-9_.:-]*(?:/[A-Za-z0-9_-][A-Za-z0-9_.:-]*)*"


def check_devices(given: list[str]) -> None:
    """Raise for what is no name of a device node, or of a directory of /sys; as above."""
    for place, one in enumerate(given):
        if re.fullmatch(_DEVICE, one) is None or one.startswith("dev/"):
            reason = f"{one[:60]!r} is no name below /dev, such as i2c-1"
            raise ValueError(f"devices[{place}]: {reason}")


def _check_user(name: str, user: str) -> None:
    if not is_user(user):
        raise ValueError(f"{name}: {user!r} is not an e-mail identity such as ada@example.org")


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of the configuration; an unknown key stops the start."""


class Http(Section, frozen=True):
    """The HTTP listeners."""

    listen: Annotated[list[str], Meta(description="addresses, or unix:/path; [] for none")] = (
        msgspec.field(default_factory=lambda: ["127.0.0.1:8420"])
    )
    hosts: Annotated[
        list[str], Meta(description="names that a Host header may carry beside the address")
    ] = []
    origins: Annotated[list[str], Meta(description="web origins that may use the API")] = []
    max_body: Size = "16M"
    max_connections: Annotated[int, Meta(ge=1, le=4096)] = 64
    rate: Annotated[float, Meta(gt=0, description="requests a second of one token")] = 100.0
    burst: Annotated[int, Meta(ge=1, description="requests at once of one token")] = 500

    def __post_init__(self) -> None:
        check_size("max_body", self.max_body, 1 << 10, _GIB)


class Socket(Section, frozen=True):
    """The Unix socket."""

    group: Annotated[str, Meta(description="group that may connect, where it exists")] = "edged"
    max_connections: Annotated[int, Meta(ge=1, le=65536)] = 512
    max_calls: Annotated[int, Meta(ge=1, description="calls in flight of one connection")] = 256


class UserEntry(Section, frozen=True):
    """One mapped local user."""

    user: Annotated[str, Meta(description="e-mail identity")]
    role: Role = "agent"

    def __post_init__(self) -> None:
        _check_user("user", self.user)


class Defaults(Section, frozen=True):
    """Values for TOOL.md tools that do not set these fields."""

    network: bool = False
    timeout: Annotated[Duration, Meta(description="seconds of wall time, 1 to 3600")] = 60
    memory: Size = "256M"
    resources: list[str] | Literal["all"] = []
    warm: bool = True

    def __post_init__(self) -> None:
        check_size("memory", self.memory, 16 * _MIB, 1 << 40)
        check_duration("timeout", self.timeout, 1, 3_600)


class ToolSettings(Section, frozen=True):
    """Settings of one tool by name."""

    enabled: bool | UnsetType = UNSET
    hidden: Annotated[
        bool, Meta(description="not listed: agents find it by a search, for some turns")
    ] = False
    env: dict[str, str | int | float | bool] = {}
    channels: Channels = msgspec.field(default_factory=lambda: ["*"])

    def __post_init__(self) -> None:
        check_channels(self.channels)


class Sandbox(Section, frozen=True):
    """How tools are run."""

    warm_memory: Annotated[
        str | int, Meta(description="memory for spare sandboxes: auto, 0, or a size")
    ] = "auto"
    limits: Annotated[
        Literal["auto", "rlimits"], Meta(description="auto: control groups where there are any")
    ] = "auto"
    parallel: Annotated[int, Meta(ge=0, le=64, description="sandboxes at once; 0: by cores")] = 0
    queue: Annotated[int, Meta(ge=1, description="calls that may wait for a sandbox")] = 1024
    idle: Annotated[Duration, Meta(description="a spare unused for so long is dropped")] = "10m"

    def __post_init__(self) -> None:
        if self.warm_memory != "auto":
            check_size("warm_memory", self.warm_memory, 0, 1 << 40)
        check_duration("idle", self.idle, 0, 86_400)


class MediaSettings(Section, frozen=True):
    """Bounds of stored media, for each user."""

    item: Size = "32M"
    total: Size = "128M"
    age: Duration = "24h"

    def __post_init__(self) -> None:
        check_size("item", self.item, 1 << 10, _GIB)
        check_size("total", self.total, 1 << 10, 1 << 40)
        check_duration("age", self.age, 1, 366 * 86_400)


class Audit(Section, frozen=True):
    """The audit trail."""

    size: Annotated[Size, Meta(description="bytes on disk, all parts together")] = "8M"
    interval: Annotated[Duration, Meta(description="records are written in batches")] = "5s"

    def __post_init__(self) -> None:
        check_size("size", self.size, 64 << 10, 16 * _GIB)
        check_duration("interval", self.interval, 0, 3_600)


class Config(Section, frozen=True):
    """`edged.yaml`, whole."""

    http: Http = Http()
    socket: Socket = Socket()
    users: dict[str, str | UserEntry] = {}
    resources: dict[str, Any] = {}
    tools: dict[str, Any] = {}
    sandbox: Literal["none"] | Sandbox = Sandbox()
    media: MediaSettings = MediaSettings()
    audit: Audit = Audit()
    stop_grace: Annotated[Duration, Meta(description="running calls may end within")] = "5s"
    board: BoardConfig = BoardConfig()
    messages: dict[str, Any] = {}

    def __post_init__(self) -> None:
        check_duration("stop_grace", self.stop_grace, 0, 3_600)
        for uid, entry in self.users.items():
            if not uid.isdecimal() or uid != str(int(uid)):
                raise ValueError(f"users.{uid}: {uid!r} is not a uid such as 1000")
            if isinstance(entry, str):
                _check_user(f"users.{uid}", entry)
