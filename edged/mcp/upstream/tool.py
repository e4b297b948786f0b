"""A tool of another server as the registry keeps it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from edged.errors import TooLargeError
from edged.mcp.client import DESCRIPTION_MAX, RemoteTool
from edged.mcp.upstream.inputs import Inputs
from edged.mcp.upstream.schemas import adapted
from edged.sandbox.frames import harmless
from edged.tool import Hints, Run, Tool

LABEL_MAX = 100


class Given(msgspec.Struct, gc=False):
    """Arguments as they are sent."""

    raw: bytes


class UpstreamTool(Tool):
    """Its arguments are passed on; what the server says of itself is not trusted.

    Attributes:
        remote: its name at the server.
    """

    __slots__ = ("_inputs", "_kind", "remote")

    def __init__(self, name: str, remote: RemoteTool, run: Run, **facts: Any) -> None:
        """A tool.

        Args:
            name: that it is published under.
            remote: as its server lists it.
            run: calls it.
            facts: as of `Tool`.

        Raises:
            ValueError: its schema is none that can be published; says why.
        """
        found = adapted(remote.input_schema)
        self._inputs = Inputs(found)
        self._kind = _kind(sorted(self._inputs.sensitive))
        self.remote = remote.name
        description = harmless((remote.description or "").strip()[:DESCRIPTION_MAX])
        note = harmless(found.note[:DESCRIPTION_MAX])
        super().__init__(
            name,
            run,
            description=" ".join(filter(None, (description, note))),
            make_type=lambda: self._kind,
            make_schema=lambda: found.schema,
            label=_label(remote),
            category="mcp",
            hints=_hints(remote.annotations),
            sensitive=self._inputs.sensitive,
            requires=("mcp",),
            output_schema=_output(remote.output_schema),
            own_deadline=True,
            **facts,
        )

    @property
    def fields(self) -> dict[str, Any]:
        """The inputs by name."""
        return dict.fromkeys(self._inputs.names)

    def decode(self, raw: bytes) -> msgspec.Struct:
        """The arguments as the server wants them.

        Raises:
            TooLargeError: more than a message may have.
            InvalidArgumentsError: they are no object.
        """
        if len(raw) > self.arguments_max:
            raise TooLargeError(f"{self.name}: its inputs are over {self.arguments_max >> 10} KiB")
        sent = self._inputs.arguments(raw, self.name)
        if not self.sensitive:
            return Given(sent)
        values = msgspec.json.decode(sent)
        names = sorted(self.sensitive)
        return self._kind(sent, *(values.get(name) for name in names))


def _kind(sensitive: list[str]) -> type[msgspec.Struct]:
    """A Struct that names what must not be logged, for whoever masks it."""
    if not sensitive:
        return Given
    fields = [
        (f"input{number}", Any, msgspec.field(name=name, default=None))
        for number, name in enumerate(sensitive)
    ]
    # A name that no published input can have.
    raw: Any = ("raw", bytes, msgspec.field(name="/raw"))
    return msgspec.defstruct("Given", [raw, *fields])


def _output(schema: Any) -> dict[str, Any] | None:
    """What its results have, as clients can check it; None where they could not.

    A client that cannot compile one refuses the whole list. What is published asks for no
    more than the server's own does.
    """
    if schema is None:
        return None
    try:
        found = adapted(schema)
    except (ValueError, RecursionError):
        return None
    return None if found.renamed else found.schema


def _label(remote: RemoteTool) -> str:
    annotations = remote.annotations if isinstance(remote.annotations, dict) else {}
    title = remote.title or annotations.get("title")
    return harmless(" ".join(str(title).split())[:LABEL_MAX]) if title else ""


def _hints(annotations: Any) -> Hints:
    """What it says that it does; where it is silent, the worst (MCP, ToolAnnotations)."""
    told = annotations if isinstance(annotations, dict) else {}

    def hint(name: str, *, default: bool) -> bool:
        value = told.get(name)
        return value if isinstance(value, bool) else default

    read_only = hint("readOnlyHint", default=False)
    return Hints(
        read_only=read_only,
        destructive=not read_only and hint("destructiveHint", default=True),
        idempotent=read_only or hint("idempotentHint", default=False),
        open_world=hint("openWorldHint", default=True),
    )


MakeRun = Callable[[str], Run]
