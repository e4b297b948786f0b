"""Parts of the configuration that belong to one family of tools each.

`tools.<name>` of edged.yaml, and `messages`. A section that is absent has its
defaults; a part of edged reads its own and no other's.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from edged.config import Duration, Section, Size, check_duration, check_size


class Exec(Section, frozen=True):
    """`tools.exec`: the shell."""

    enabled: bool = True
    timeout: Annotated[Duration, Meta(description="of a command that names none")] = 60
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

    def __post_init__(self) -> None:
        check_duration("timeout", self.timeout, 1, 86_400)
        check_duration("timeout_max", self.timeout_max, 1, 7 * 86_400)
        check_size("memory", self.memory, 16 << 20, 1 << 40)


class Files(Section, frozen=True):
    """`tools.files`: what the file tools reach beside the workspace."""

    max_read_size: Annotated[Size, Meta(description="of one answer of read_file")] = "64K"
    mode: Annotated[
        Literal["bytes", "lines"], Meta(description="how read_file pages by default")
    ] = "bytes"
    read: Annotated[list[str], Meta(description="paths that may be read: /var/log/*")] = []
    write: Annotated[list[str], Meta(description="paths that may be written")] = []
    deny: Annotated[list[str], Meta(description="paths that may be neither, not even there")] = []

    def __post_init__(self) -> None:
        check_size("max_read_size", self.max_read_size, 1 << 10, 16 << 20)


class Cron(Section, frozen=True):
    """`tools.cron`: schedules."""

    enabled: bool = True
    min_interval: Annotated[Duration, Meta(description="between two runs of one job")] = "60s"
    misfire_grace: Annotated[
        Duration, Meta(description="a run that was missed by less is made up for")
    ] = "1h"

    def __post_init__(self) -> None:
        check_duration("min_interval", self.min_interval, 1, 86_400)
        check_duration("misfire_grace", self.misfire_grace, 0, 366 * 86_400)


class Discovery(Section, frozen=True):
    """`tools.mcp.discovery`: how hidden tools are found."""

    enabled: bool = True
    use_regex: Annotated[bool, Meta(description="offer tool_search_tool_regex")] = True
    use_bm25: Annotated[bool, Meta(description="offer tool_search_tool_bm25")] = True
    ttl: Annotated[
        int, Meta(ge=1, le=1_000, description="turns for which a found tool can be called")
    ] = 5
    max_search_results: Annotated[int, Meta(ge=1, le=50, description="tools of one answer")] = 5


class Mcp(Section, frozen=True):
    """`tools.mcp`: tools of other MCP servers, and the search for hidden tools."""

    enabled: bool = True
    discovery: Discovery = Discovery()
    servers: Annotated[
        dict[str, Any], Meta(description="by name; this version does not start them yet")
    ] = {}


SECTIONS: dict[tuple[str, ...], type[Section]] = {
    ("tools", "exec"): Exec,
    ("tools", "files"): Files,
    ("tools", "cron"): Cron,
    ("tools", "mcp"): Mcp,
}
"""By their place in the configuration."""
