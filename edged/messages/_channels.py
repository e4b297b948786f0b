"""The configured channels: their settings checked, with key and remedy; then opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, cast

import msgspec

from edged import plugins, yamlio
from edged.errors import ConfigError
from edged.messages import Channel, Settings, Surroundings


class _Kind(Protocol):
    """A file of this package."""

    Config: type[Settings]
    open_channel: Callable[[Any, Surroundings], Channel]


def open_channels(
    given: Mapping[str, Mapping[str, Any]], around: Surroundings
) -> dict[str, Channel]:
    """All channels of the configuration, by name; nothing is connected yet.

    Args:
        given: `messages.channels`.
        around: what they may use.

    Raises:
        ConfigError: with the key of the first fault.
    """
    return {
        name: kind.open_channel(settings, around) for name, kind, settings in configured(given)
    }


def configured(
    given: Mapping[str, Mapping[str, Any]],
) -> Iterator[tuple[str, _Kind, Settings]]:
    """Name, kind and settings of each channel, checked.

    Raises:
        ConfigError: with the key of the first fault.
    """
    for name, one in given.items():
        key = f"messages.channels.{name}"
        kind = _kind(key, one)
        yield name, kind, _settings(key, one, kind.Config)


def _kind(key: str, given: Mapping[str, Any]) -> _Kind:
    if given.get("kind") is None:
        known = ", ".join(plugins.names("edged.messages"))
        raise ConfigError(f"kind is missing: one of {known}", key=key)
    try:
        return cast("_Kind", plugins.load("edged.messages", str(given["kind"])))
    except ConfigError as error:
        # The package's name is no word of the user's.
        reason = error.reason.replace("one of messages", "a kind of channel")
        raise ConfigError(reason, key=f"{key}.kind") from None


def _settings(key: str, given: Mapping[str, Any], kind: type[Settings]) -> Settings:
    try:
        return msgspec.convert(given, kind, str_keys=True)
    except msgspec.ValidationError:
        # Said again below, in words; other faults are told when the first one is mended.
        pass
    named, reason = yamlio.faults(given, kind)[0]
    if not named:
        # A rule of a Struct (`__post_init__`) names the field that it is about, and a colon.
        head, _, rest = reason.partition(": ")
        if rest:
            named, reason = head, rest
    raise ConfigError(reason, key=f"{key}.{named}" if named else key)
