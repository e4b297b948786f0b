"""The configuration: Structs of `edged.yaml`, where files lie, and how it is read.

A setting is one field of one Struct here; defaults, ranges, the documentation
and `edged config --explain` derive from it. The user's file is never written.
"""

from __future__ import annotations

import os
import re
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from edged.errors import ConfigError

T = TypeVar("T")

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_UNITS_B = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMG]?)(?:i?B)?")

Duration = Annotated[str | int | float, Meta(description="seconds, or text such as 20ms, 60s, 1h")]
Size = Annotated[str | int, Meta(description="bytes, or text such as 64K, 256M, 1G")]


def seconds(value: str | float) -> float:
    """Seconds of a duration setting.

    Raises:
        ValueError: not a duration.
    """
    if isinstance(value, str):
        match = _DURATION.fullmatch(value.strip())
        if not match:
            raise ValueError(f"{value!r} is not a duration: write 20ms, 60s, 5m or 1h")
        return float(match[1]) * _UNITS_S[match[2]]
    return float(value)


def size(value: str | int) -> int:
    """Bytes of a size setting.

    Raises:
        ValueError: not a size.
    """
    if isinstance(value, str):
        match = _SIZE.fullmatch(value.strip())
        if not match:
            raise ValueError(f"{value!r} is not a size: write 64K, 256M or 1G")
        return int(float(match[1]) * _UNITS_B[match[2]])
    return value


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of the configuration; an unknown key stops the start."""


class Http(Section, frozen=True):
    """The HTTP listeners."""

    listen: Annotated[
        list[str], Meta(description="addresses, or unix:/path; [] for none")
    ] = msgspec.field(default_factory=lambda: ["127.0.0.1:8420"])
    hosts: Annotated[
        list[str], Meta(description="names that a Host header may carry beside the address")
    ] = []
    origins: Annotated[list[str], Meta(description="web origins that may use the API")] = []
    max_body: Size = "16M"
    max_connections: Annotated[int, Meta(ge=1, le=4096)] = 64
    rate: Annotated[float, Meta(gt=0, description="requests a second of one token")] = 100.0
    burst: Annotated[int, Meta(ge=1, description="requests at once of one token")] = 500

    def __post_init__(self) -> None:
        size(self.max_body)


class Socket(Section, frozen=True):
    """The Unix socket."""

    group: Annotated[str, Meta(description="group that may connect, where it exists")] = "edged"
    max_connections: Annotated[int, Meta(ge=1, le=65536)] = 512
    max_calls: Annotated[int, Meta(ge=1, description="calls in flight of one connection")] = 256


class UserEntry(Section, frozen=True):
    """One mapped local user."""

    user: Annotated[str, Meta(description="e-mail identity")]
    role: Literal["owner", "agent"] = "agent"


class Defaults(Section, frozen=True):
    """Values for TOOL.md tools that do not set these fields."""

    network: bool = False
    timeout: Annotated[Duration, Meta(description="seconds of wall time, 1 to 3600")] = 60
    memory: Size = "256M"
    resources: list[str] | Literal["all"] = []
    warm: bool = True

    def __post_init__(self) -> None:
        size(self.memory)
        if not 1 <= seconds(self.timeout) <= 3600:
            raise ValueError("must be from 1 to 3600 seconds")


class ToolSettings(Section, frozen=True):
    """Settings of one tool by name."""

    enabled: bool | UnsetType = UNSET
    env: dict[str, str | int | float | bool | Any] = {}


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
            size(self.warm_memory)
        seconds(self.idle)


class MediaSettings(Section, frozen=True):
    """Bounds of stored media, for each user."""

    item: Size = "32M"
    total: Size = "128M"
    age: Duration = "24h"

    def __post_init__(self) -> None:
        for value in (self.item, self.total):
            size(value)
        seconds(self.age)


class Audit(Section, frozen=True):
    """The audit trail."""

    size: Annotated[Size, Meta(description="bytes on disk, all parts together")] = "8M"
    interval: Annotated[Duration, Meta(description="records are written in batches")] = "5s"

    def __post_init__(self) -> None:
        size(self.size)
        seconds(self.interval)


Later = dict[str, Any]
"""A section that is read by a part of edged that is not there yet."""


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
    board: Later = {}
    messages: Later = {}

    def __post_init__(self) -> None:
        seconds(self.stop_grace)
        for key in self.users:
            if not key.isdigit():
                raise ValueError(f"users: {key!r} is not a uid")
