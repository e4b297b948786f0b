"""Parts of the configuration that belong to one family of tools each.

`tools.<name>` of edged.yaml, and `messages`. A section that is absent has its
defaults; a part of edged reads its own and no other's.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from edged.config import (
    Channels,
    Duration,
    Section,
    Size,
    check_channels,
    check_devices,
    check_duration,
    check_size,
    check_url,
    seconds,
)

COMMAND_S = 60
"""Seconds of a command, where nothing is said."""


class Exec(Section, frozen=True):
    """`tools.exec`: the shell."""

    enabled: bool = True
    timeout: Annotated[Duration, Meta(description="of a command that names none")] = COMMAND_S
    timeout_max: Annotated[Duration, Meta(description="that a call may ask for")] = "1h"
    ask_permission: Annotated[
        bool, Meta(description="agents may ask the owner for paths outside the workspace")
    ] = True
    deny: Annotated[list[str], Meta(description="patterns of commands that are refused")] = []
    allow: Annotated[
        list[str], Meta(description="patterns of commands that the built-in list lets pass")
    ] = []
    sessions: Annotated[int, Meta(ge=0, le=64, description="of one caller at once")] = 8
    network: bool = False
    devices: Annotated[list[str], Meta(description="device nodes, such as i2c-1")] = []
    memory: Annotated[Size, Meta(description="of all processes of a command")] = "256M"
    channels: Channels = msgspec.field(default_factory=lambda: ["*"])

    def __post_init__(self) -> None:
        check_channels(self.channels)
        check_duration("timeout", self.timeout, 1, 86_400)
        check_duration("timeout_max", self.timeout_max, 1, 7 * 86_400)
        if self.timeout != COMMAND_S and seconds(self.timeout) > seconds(self.timeout_max):
            raise ValueError(f"timeout: is over timeout_max, which is {self.timeout_max}")
        check_size("memory", self.memory, 16 << 20, 1 << 40)
        check_devices(self.devices)
        for name in ("deny", "allow"):
            for place, pattern in enumerate(getattr(self, name)):
                if not pattern:
                    reason = "is empty, and so is found in every command: write .* for all"
                    raise ValueError(f"{name}[{place}]: {reason}")
                try:
                    re.compile(pattern)
                except re.error as error:
                    raise ValueError(f"{name}[{place}]: {pattern!r}: {error}") from None


class Files(Section, frozen=True):
    """`tools.files`: what the file tools reach beside the workspace."""

    max_read_size: Annotated[Size, Meta(description="of one answer of read_file")] = "64K"
    mode: Annotated[
        Literal["bytes", "lines"], Meta(description="how read_file pages by default")
    ] = "bytes"
    read: Annotated[list[str], Meta(description="paths that may be read: /var/log/*")] = []
    write: Annotated[list[str], Meta(description="paths that may be written")] = []
    deny: Annotated[list[str], Meta(description="paths that may be neither, not even there")] = []
    quota: Annotated[
        Size, Meta(description="that a user's files may take; auto: a quarter of the disk; 0: any")
    ] = "auto"
    reserve: Annotated[
        Size, Meta(description="that agents leave free on the disk; auto: 5 %, at most 256M")
    ] = "auto"

    def __post_init__(self) -> None:
        check_size("max_read_size", self.max_read_size, 1 << 10, 16 << 20)
        for name in ("read", "write", "deny"):
            for place, pattern in enumerate(getattr(self, name)):
                fault = _fault_of_path(pattern, is_denied=name == "deny")
                if fault:
                    raise ValueError(f"{name}[{place}]: {pattern[:60]!r} {fault}")
        for name, value in (("quota", self.quota), ("reserve", self.reserve)):
            if value != "auto":
                check_size(name, value, 0, 1 << 40)


def _fault_of_path(pattern: str, *, is_denied: bool) -> str:
    """Why a pattern of paths is of no use; empty where it is."""
    if not pattern.strip() or "\0" in pattern:
        return "is no path: write one such as /var/log/*"
    if {".", ".."} & set(pattern.split("/")):
        return "has . or .. in it, which no path has that is compared: write it without"
    if not is_denied and f"{pattern}/".startswith("/proc/"):
        return "is of processes: no file tool reaches it"
    return ""


class Cron(Section, frozen=True):
    """`tools.cron`: schedules."""

    enabled: bool = True
    min_interval: Annotated[Duration, Meta(description="between two runs of one job")] = "60s"
    misfire_grace: Annotated[
        Duration, Meta(description="a run that was missed by less is made up for")
    ] = "1h"
    max_jobs: Annotated[int, Meta(ge=1, le=100_000, description="of one user")] = 10_000
    command_channels: Annotated[
        list[str], Meta(description="channels from which commands may be scheduled; * is any")
    ] = msgspec.field(default_factory=lambda: ["*"])
    channels: Channels = msgspec.field(default_factory=lambda: ["*"])

    def __post_init__(self) -> None:
        check_channels(self.channels)
        check_duration("min_interval", self.min_interval, 1, 86_400)
        check_duration("misfire_grace", self.misfire_grace, 0, 366 * 86_400)


SkillKind = Literal["", "clawhub", "github", "directory", "http"]
"""Kinds of registries; empty: that of the registry's own name."""


_USED = {
    "clawhub": ("url", "token"),
    "github": ("url", "token", "repositories"),
    "directory": ("path",),
    "http": ("url", "token"),
}
"""Settings of each kind."""

_REGISTRY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")


class SkillRegistry(Section, frozen=True):
    """One registry of `tools.skills.registries`."""

    kind: Annotated[SkillKind, Meta(description="clawhub, github, directory or http")] = ""
    enabled: bool = True
    url: Annotated[str, Meta(description="of another server than the usual one, or of http")] = ""
    path: Annotated[str, Meta(description="of a directory; absolute")] = ""
    token: Annotated[str, Meta(description="!secret NAME")] = ""
    repositories: Annotated[
        list[str], Meta(description="OWNER/REPO that a search of github looks through")
    ] = []

    def __post_init__(self) -> None:
        check_url("url", self.url)
        if self.path and not self.path.startswith("/"):
            raise ValueError("path: must be absolute")
        if not (self.token.isascii() and self.token.isprintable()):
            raise ValueError("token: has characters that no header may have")
        for one in self.repositories:
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9_.-]*[A-Za-z0-9_-]", one):
                raise ValueError(f"repositories: {one[:60]!r} is not OWNER/REPO")

    def unused(self, kind: str) -> str:
        """A setting that says nothing to a registry of this kind; empty if there is none."""
        given = {"url": self.url, "path": self.path, "token": self.token}
        given["repositories"] = ",".join(self.repositories)
        return next((one for one in given if given[one] and one not in _USED[kind]), "")

    def kind_of(self, name: str) -> str:
        """Its kind; that of its name where it says none."""
        return self.kind or name


class Skills(Section, frozen=True):
    """`tools.skills`: folders of instructions, and where they are found."""

    enabled: bool = True
    registries: Annotated[
        dict[str, SkillRegistry], Meta(description="by name; the first that has a skill gives it")
    ] = msgspec.field(
        default_factory=lambda: {"clawhub": SkillRegistry(), "github": SkillRegistry()}
    )

    def __post_init__(self) -> None:
        for name, one in self.registries.items():
            kind, key = one.kind_of(name), f"registries.{name}"
            if _REGISTRY_NAME.fullmatch(name) is None:
                raise ValueError(f"{key}: a name has letters, digits, ., - and _, at most 40")
            if kind not in _USED:
                raise ValueError(f"{key}: needs a kind: clawhub, github, directory or http")
            if kind == "directory" and not one.path:
                raise ValueError(f"{key}: needs the path of the directory")
            if kind == "http" and not one.url:
                raise ValueError(f"{key}: needs the url of its index")
            unused = one.unused(kind)
            if unused:
                raise ValueError(f"{key}.{unused}: is not of a registry of the kind {kind}")


class Discovery(Section, frozen=True):
    """`tools.mcp.discovery`: how hidden tools are found."""

    enabled: bool = True
    use_regex: Annotated[bool, Meta(description="offer tool_search_tool_regex")] = True
    use_bm25: Annotated[bool, Meta(description="offer tool_search_tool_bm25")] = True
    ttl: Annotated[
        int, Meta(ge=1, le=1_000, description="turns for which a found tool can be called")
    ] = 5
    max_search_results: Annotated[int, Meta(ge=1, le=50, description="tools of one answer")] = 5


McpLink = Literal[
    "", "stdio", "http", "sse", "streamable-http", "streamable_http", "streamableHttp"
]
"""How an MCP server is reached; empty: by stdio where there is a command, else by HTTP."""

FETCHERS = frozenset({"npx", "uvx", "pnpx", "bunx", "pipx"})
"""Commands that fetch what they run."""

_SERVER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class McpServer(Section, frozen=True):
    """One server of `tools.mcp.servers`."""

    enabled: bool = True
    type: Annotated[
        McpLink, Meta(description="stdio, http or sse; by command or url if empty")
    ] = ""
    command: Annotated[str, Meta(description="program of a stdio server")] = ""
    args: list[str | int | float] = []
    env: Annotated[
        dict[str, str | int | float | bool], Meta(description="variables; !secret NAME")
    ] = {}
    env_file: Annotated[str, Meta(description="more variables, NAME=value a line")] = ""
    url: Annotated[str, Meta(description="of a server over HTTP")] = ""
    headers: Annotated[dict[str, str], Meta(description="of each request; !secret NAME")] = {}
    network: Annotated[
        bool | UnsetType, Meta(description="of a stdio server; npx, uvx and the like have it")
    ] = UNSET
    devices: Annotated[list[str], Meta(description="device nodes, such as i2c-1")] = []
    read: Annotated[list[str], Meta(description="paths that a stdio server may read")] = []
    write: Annotated[list[str], Meta(description="paths that it may write")] = []
    memory: Annotated[Size, Meta(description="of all processes of a stdio server")] = "512M"
    lazy: Annotated[
        bool, Meta(description="started by its first call; false: with the daemon, and kept")
    ] = True
    idle: Annotated[Duration, Meta(description="a lazy one unused for so long is stopped")] = "10m"
    deferred: Annotated[
        bool | UnsetType, Meta(description="tools are hidden; by default where discovery is on")
    ] = UNSET
    allow: Annotated[
        list[str], Meta(description="its tools that are taken: read_*; all where it is empty")
    ] = []
    deny: Annotated[list[str], Meta(description="its tools that are left out")] = []
    connect: Annotated[Duration, Meta(description="for it to start and list its tools")] = "60s"
    timeout: Annotated[Duration, Meta(description="of one call")] = "60s"
    timeouts: Annotated[dict[str, Duration], Meta(description="of calls of single tools")] = {}

    def __post_init__(self) -> None:
        if bool(self.command) == bool(self.url):
            raise ValueError("command: give either the command of a server or its url")
        self._check_kind()
        check_url("url", self.url)
        if self.type and (self.type == "stdio") != bool(self.command):
            needs = "a command" if self.type == "stdio" else "a url"
            raise ValueError(f"type: {self.type} needs {needs}")
        if "\0" in "".join(self.argv):
            raise ValueError("args: has a NUL character")
        self._check_texts()
        check_devices(self.devices)
        for name in ("read", "write"):
            for path in getattr(self, name):
                if not path.startswith("/"):
                    raise ValueError(f"{name}: {path[:60]!r} must be absolute")
        check_size("memory", self.memory, 16 << 20, 1 << 40)
        check_duration("idle", self.idle, 1, 30 * 86_400)
        check_duration("connect", self.connect, 0.1, 600)
        check_duration("timeout", self.timeout, 0.1, 3_600)
        for tool, value in self.timeouts.items():
            check_duration(f"timeouts.{tool}", value, 0.1, 3_600)

    def _check_kind(self) -> None:
        """What says nothing of a server of this kind is a mistake."""
        if _URL.match(self.command):
            raise ValueError("command: is a URL: one of http:// or https:// goes to `url`")
        first, *rest = self.command.split() or [""]
        if rest and "/" not in first:
            words = ", ".join(rest)[:60]
            raise ValueError(f"command: is {first!r} alone: write `args: [{words}]` beside it")
        other = (
            ("headers",)
            if self.command
            else ("args", "env", "env_file", "read", "write", "devices")
        )
        for name in other:
            if getattr(self, name):
                raise ValueError(
                    f"{name}: is of a server with a {'url' if self.command else 'command'}"
                )

    def _check_texts(self) -> None:
        for name in self.env:
            if _VARIABLE.fullmatch(name) is None:
                raise ValueError(f"env.{name}: a variable has letters, digits and _ only")
        for name, value in self.headers.items():
            if _HEADER.fullmatch(name) is None:
                raise ValueError(f"headers.{name}: is no name of a header")
            if not all(" " <= char <= "~" for char in value):
                raise ValueError(f"headers.{name}: has characters that no header may have")

    @property
    def argv(self) -> tuple[str, ...]:
        """The command line of a stdio server."""
        return (self.command, *map(str, self.args))

    @property
    def link(self) -> Literal["stdio", "http", "sse"]:
        """How it is reached."""
        if self.command:
            return "stdio"
        return "sse" if self.type == "sse" else "http"

    @property
    def has_network(self) -> bool:
        """Whether a stdio server reaches the network."""
        if self.network is not UNSET:
            return self.network
        return self.fetches

    @property
    def fetches(self) -> bool:
        """Whether it is started by what fetches it, unless that is there."""
        return self.command.rpartition("/")[2] in FETCHERS


def check_server_name(name: str) -> None:
    """Raise for what is no name of an MCP server.

    Raises:
        ValueError: says what one looks like.
    """
    if _SERVER_NAME.fullmatch(name) is None:
        raise ValueError(f"{name[:60]!r}: a name has letters, digits, - and _, at most 40")


class Mcp(Section, frozen=True):
    """`tools.mcp`: tools of other MCP servers, and the search for hidden tools."""

    enabled: bool = True
    discovery: Discovery = Discovery()
    servers: Annotated[dict[str, McpServer], Meta(description="other MCP servers, by name")] = {}

    def __post_init__(self) -> None:
        for name in self.servers:
            try:
                check_server_name(name)
            except ValueError as error:
                raise ValueError(f"servers.{name}: {error}") from None


class WebProvider(Section, frozen=True):
    """One search provider of `tools.web`."""

    enabled: bool = True
    max_results: Annotated[int, Meta(ge=1, le=50, description="that one search gives")] = 10
    api_key: Annotated[str, Meta(description="!secret NAME")] = ""
    api_keys: Annotated[list[str], Meta(description="more keys; used in turn")] = []
    base_url: Annotated[str, Meta(description="of your own or a compatible server")] = ""

    def __post_init__(self) -> None:
        check_url("base_url", self.base_url)
        for name, keys in (("api_key", [self.api_key]), ("api_keys", self.api_keys)):
            if not all(
                key.isascii() and key.isprintable() and " " not in key.strip() for key in keys
            ):
                raise ValueError(f"{name}: a key has characters that no header may have")


WebProviderId = Literal[
    "auto",
    "sogou",
    "duckduckgo",
    "brave",
    "tavily",
    "perplexity",
    "searxng",
    "glm_search",
    "baidu_search",
    "kagi",
    "glm",
    "baidu",
]
"""Search providers; `glm` and `baidu` are short for `glm_search` and `baidu_search`."""


class Web(Section, frozen=True):
    """`tools.web`: search and fetch."""

    enabled: Annotated[bool, Meta(description="web_search; web_fetch has its own switch")] = True
    provider: Annotated[WebProviderId, Meta(description="asked first")] = "auto"
    proxy: Annotated[str, Meta(description="http://, https://, socks5:// or socks5h://")] = ""
    prefer_native: Annotated[bool, Meta(description="kept for clients; changes nothing")] = False
    sogou: WebProvider = WebProvider()
    duckduckgo: WebProvider = WebProvider()
    brave: WebProvider = WebProvider()
    tavily: WebProvider = WebProvider()
    perplexity: WebProvider = WebProvider()
    searxng: WebProvider = WebProvider()
    glm_search: WebProvider = WebProvider()
    baidu_search: WebProvider = WebProvider()
    kagi: WebProvider = WebProvider()
    fetch_limit_bytes: Annotated[Size, Meta(description="of one page; the rest is cut")] = "10M"
    fetch_timeout: Annotated[Duration, Meta(description="of one page, from first to last")] = 60
    private_host_whitelist: Annotated[
        list[str], Meta(description="addresses and networks beside the internet's: 192.168.1.0/24")
    ] = []

    def __post_init__(self) -> None:
        check_size("fetch_limit_bytes", self.fetch_limit_bytes, 1 << 10, 32 << 20)
        check_duration("fetch_timeout", self.fetch_timeout, 1, 600)
        check_url("proxy", self.proxy, PROXIES)
        for entry in self.private_host_whitelist:
            from ipaddress import ip_network  # noqa: PLC0415  a megabyte, where there is a list

            try:
                ip_network(entry.strip(), strict=False)
            except ValueError:
                reason = f"{entry[:60]!r} is no address or network such as 192.168.1.0/24"
                raise ValueError(f"private_host_whitelist: {reason}") from None


PROXIES = ("http://", "https://", "socks5://", "socks5h://")
"""What the address of a proxy begins with."""

_CHANNEL_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")


class Messages(Section, frozen=True):
    """`messages`: the outbox and the channels that it serves."""

    default: Annotated[str, Meta(description="channel of messages that name none")] = ""
    channels: Annotated[
        dict[str, dict[str, Any]], Meta(description="by name: kind, and the kind's own settings")
    ] = {}
    give_up: Annotated[Duration, Meta(description="a message is tried for so long")] = "24h"
    count: Annotated[int, Meta(ge=1, le=10_000, description="messages that may wait")] = 1_000
    size: Annotated[Size, Meta(description="bytes on disk of all that wait")] = "64M"

    def __post_init__(self) -> None:
        check_duration("give_up", self.give_up, 1, 30 * 86_400)
        check_size("size", self.size, 64 << 10, 16 << 30)
        for name in self.channels:
            if _CHANNEL_NAME.fullmatch(name) is None:
                raise ValueError(f"channels.{name}: a name has a-z, 0-9, - and _, from a letter")
        if self.default and self.default not in self.channels:
            known = ", ".join(self.channels) or "none"
            raise ValueError(f"default: {self.default!r} is not one of the channels: {known}")
        if len(self.channels) > 1 and not self.default:
            names = ", ".join(self.channels)
            raise ValueError(f"channels: there are several: write default: one of {names}")


class ModelProvider(Section, frozen=True):
    """One model server of `tools.subagent.providers`."""

    kind: Annotated[
        Literal["openai", "openai-responses", "anthropic"],
        Meta(description="what it speaks: chat completions, responses, or messages"),
    ] = "openai"
    base_url: Annotated[
        str, Meta(description="of a server of your own: http://127.0.0.1:8080/v1")
    ] = ""
    model: Annotated[str, Meta(description="for agents that name none that it has")] = ""
    models: Annotated[
        dict[str, str], Meta(description="other names for its models: {claude-3-5-sonnet: small}")
    ] = {}
    context: Annotated[
        int, Meta(ge=0, le=100_000_000, description="tokens that it takes at once; 0: enough")
    ] = 0
    api_key: Annotated[str, Meta(description="!secret NAME")] = ""
    api_keys: Annotated[list[str], Meta(description="more keys; used in turn")] = []
    headers: Annotated[dict[str, str], Meta(description="of each request; !secret NAME")] = {}
    proxy: Annotated[str, Meta(description="http://HOST:PORT that requests go through")] = ""
    timeout: Annotated[
        Duration, Meta(description="without a word from it; small boards think long")
    ] = "5m"

    def __post_init__(self) -> None:
        check_url("base_url", self.base_url)
        check_url("proxy", self.proxy)
        check_duration("timeout", self.timeout, 1, 3_600)
        texts = {"api_key": [self.api_key], "api_keys": self.api_keys}
        texts |= {f"headers.{name}": [name, value] for name, value in self.headers.items()}
        for name, values in texts.items():
            if not all(value.isascii() and value.isprintable() for value in values):
                raise ValueError(f"{name}: has characters that no header may have")

    @property
    def secrets(self) -> tuple[str, ...]:
        """What is never told: its keys, and headers that are one by their names."""
        kept = [
            value.rpartition(" ")[2]
            for name, value in self.headers.items()
            if re.search("auth|cookie|key|secret|token", name, re.IGNORECASE)
        ]
        return tuple(filter(None, (self.api_key, *self.api_keys, *kept)))


class Subagent(Section, frozen=True):
    """`tools.subagent`: models that work with this board's tools on their own."""

    enabled: bool = True
    providers: Annotated[
        dict[str, ModelProvider], Meta(description="model servers by name; the first is asked")
    ] = {}
    default: Annotated[str, Meta(description="the provider in place of the first")] = ""
    turns: Annotated[int, Meta(ge=1, le=1_000, description="answers of a model for one task")] = 30
    tokens: Annotated[
        int, Meta(ge=1_000, le=100_000_000, description="read and written for one task")
    ] = 500_000
    answer_tokens: Annotated[
        int, Meta(ge=16, le=1_000_000, description="of one answer, where the task says nothing")
    ] = 4_096
    result: Annotated[Size, Meta(description="of what a tool answers that the model is shown")] = (
        "16K"
    )
    time: Annotated[Duration, Meta(description="for one task")] = "15m"
    depth: Annotated[
        int, Meta(ge=1, le=4, description="how deep subagents may have subagents")
    ] = 2
    running: Annotated[int, Meta(ge=1, le=64, description="subagents at once, of all callers")] = 4
    waiting: Annotated[int, Meta(ge=0, le=1_000, description="tasks that wait for a place")] = 16
    kept: Annotated[int, Meta(ge=1, le=10_000, description="tasks that are remembered")] = 100

    def __post_init__(self) -> None:
        check_duration("time", self.time, 1, 86_400)
        check_size("result", self.result, 256, 1 << 20)
        if self.default and self.default not in self.providers:
            known = ", ".join(self.providers) or "none"
            raise ValueError(f"default: {self.default!r} is not one of the providers: {known}")
        for name, one in self.providers.items():
            if not one.model and not one.models:
                raise ValueError(f"providers.{name}.model: name a model that the server has")


SECTIONS: dict[tuple[str, ...], type[Section]] = {
    ("tools", "exec"): Exec,
    ("tools", "files"): Files,
    ("tools", "cron"): Cron,
    ("tools", "mcp"): Mcp,
    ("tools", "web"): Web,
    ("messages",): Messages,
    ("tools", "skills"): Skills,
    ("tools", "subagent"): Subagent,
}
"""By their place in the configuration."""
