"""What owners set at run time: it wins over the configuration's file until it is dropped.

Each part of edged that lets owners change settings keeps them in a file of its own
below the data directory, and tells here which keys of the configuration they are.
The daemon is the only writer; while it is down, whoever holds the lock of the data
directory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, ClassVar, NamedTuple, Protocol

import msgspec

from edged import disguise
from edged.errors import ExistsError, NotFoundError
from edged.sections import McpServer
from edged.settings import switch_path
from edged.store import Store


class Held(NamedTuple):
    """One value that an owner set, and the file that has it; a secret is masked."""

    value: Any
    file: str


class Acts(Protocol):
    """The settings of one part."""

    def held(self) -> dict[str, Held]:
        """What was set, by dotted key, such as `tools.exec.enabled`."""

    def drop(self, keys: Collection[str]) -> None:
        """Forget these, on disk and where they are used; what is no key of it counts for nothing.

        Raises:
            StoreError: nothing changed.
        """


class Switches:
    """Tools and families that owners switched on or off."""

    FILE: ClassVar[str] = "tool-switches"

    def __init__(
        self, store: Store, changed: Callable[[dict[str, bool]], None] = lambda _: None
    ) -> None:
        """The switches of a data directory.

        Args:
            store: has them.
            changed: uses what is left from then on.
        """
        self._store = store
        self._changed = changed

    def held(self) -> dict[str, Held]:
        """Each as the configuration names it."""
        values, file = (
            self._store.peek(self.FILE, dict[str, bool], {}),
            self._store.path(self.FILE),
        )
        return {switch_path(key): Held(value, file) for key, value in values.items()}

    def drop(self, keys: Collection[str]) -> None:
        """Forget some; those of tools that are not there stay as they are."""
        before = self._store.load(self.FILE, dict[str, bool], {})
        kept = {key: value for key, value in before.items() if switch_path(key) not in keys}
        if kept != before:
            self._store.save(self.FILE, kept)
            self._changed(kept)


class McpServers:
    """Other MCP servers that owners added; no value of a variable or header is told."""

    FILE: ClassVar[str] = "mcp-servers"
    ROOT: ClassVar[str] = "tools.mcp.servers"

    def __init__(
        self, store: Store, dropped: Callable[[list[str]], None] = lambda _: None
    ) -> None:
        """The servers of a data directory.

        Args:
            store: has them.
            dropped: ends those of these names.
        """
        self._store = store
        self._dropped = dropped

    def held(self) -> dict[str, Held]:
        """Each setting of each, as the configuration names it."""
        file = self._store.path(self.FILE)
        found = {}
        for name, one in self._store.peek(self.FILE, dict[str, McpServer], {}).items():
            for key, value in msgspec.to_builtins(one).items():
                found[f"{self.ROOT}.{name}.{key}"] = Held(_disguised(key, value), file)
        return found

    def drop(self, keys: Collection[str]) -> None:
        """Forget those of which any setting is named."""
        before = self._store.load(self.FILE, dict[str, McpServer], {})
        gone = [n for n in before if any(key.startswith(f"{self.ROOT}.{n}.") for key in keys)]
        if gone:
            kept = {name: one for name, one in before.items() if name not in gone}
            self._store.save(self.FILE, kept)
            self._dropped(gone)


def _disguised(key: str, value: Any) -> Any:
    """A setting of a server without its secrets."""
    if key in ("env", "headers"):
        return dict.fromkeys(value, disguise.MASK)
    if key == "args":
        return disguise.words(map(str, value))
    return disguise.url(value) if key == "url" else value


def reset(acts: Iterable[Acts], key: str) -> dict[str, Any]:
    """Drop what was set for `key` and below it; returns what that was, by key.

    An MCP server that was added is one value, and goes by its own name alone.

    Raises:
        NotFoundError: nothing was set there; names what was.
        ExistsError: MCP servers lie below; nothing was dropped.
        StoreError: it could not be stored.
    """
    known = [(part, part.held()) for part in acts]
    dropped = {
        name: one.value
        for _, held in known
        for name, one in held.items()
        if name == key or name.startswith(f"{key}.")
    }
    if not dropped:
        names = sorted({_unit(part, name) for part, held in known for name in held})
        others = f"; there is: {', '.join(names[:20])}" if names else ", or anything else"
        raise NotFoundError(f"no owner set {key[:128]!r} at run time{others}")
    servers = _servers(known, dropped)
    below = sorted(one for one in servers if one.startswith(f"{key}."))
    if below:
        named = ", ".join(one.removeprefix(f"{McpServers.ROOT}.") for one in below)
        raise ExistsError(
            f"below {key} are MCP servers that were added: {named}: edged mcp-server remove NAME "
            "removes one; nothing was dropped"
        )
    for part, held in known:
        keys = dropped.keys() & held.keys()
        if keys:
            part.drop(keys)
    settings = tuple(f"{one}." for one in servers)
    return {k: v for k, v in dropped.items() if not k.startswith(settings)} | servers


def _unit(part: Acts, key: str) -> str:
    """The key that goes when this one does: of an added MCP server, the whole server's."""
    return key.rpartition(".")[0] if isinstance(part, McpServers) else key


def _servers(
    known: list[tuple[Acts, dict[str, Held]]], dropped: Collection[str]
) -> dict[str, str]:
    """The added MCP servers that would go, by key: what each is reached by."""
    found: dict[str, str] = {}
    for part, held in known:
        for key in held.keys() & dropped:
            one = _unit(part, key)
            if one != key:
                command = [held[f"{one}.command"].value, *held[f"{one}.args"].value]
                found[one] = held[f"{one}.url"].value or " ".join(map(str, command))
    return found
