"""A tool: its name, its schema and what runs it; and the context of one call.

One frozen Struct is a built-in tool's decoder, validator and JSON Schema. `@tool`
wraps a function and registers nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, get_type_hints

import msgspec

from edged.errors import TooLargeError
from edged.held import Share
from edged.identity import Caller
from edged.results import Block, Late, Result

Params: TypeAlias = Any
Run: TypeAlias = Callable[[Any, "Context"], Result | Awaitable[Result | Late]]
Status: TypeAlias = Literal["enabled", "disabled", "blocked"]


ARGUMENTS_MAX = 16 << 20
"""Bytes of a call's inputs: a whole message may be no larger (contract, section 5)."""


class Interrupted(Exception):  # noqa: N818  no fault: the call goes on by another request
    """A call ends without a result of its tool; the door that it came by says how to go on."""


class Ask(NamedTuple):
    """One question to the client: a method of MCP's (`elicitation/create`), and its params."""

    method: str
    params: dict[str, Any]


class Client(Protocol):
    """The program that made a call, where it takes more than a result."""

    def can(self, method: str) -> bool:
        """Whether it may be asked so: `elicitation/create`, `roots/list` ..."""

    def log(self, level: str, data: Any, logger: str = "") -> None:
        """Send a message of RFC 5424's severities, where the client wants such."""

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Say how far the call is."""

    def defer(self, *, required: bool = False) -> None:
        """Say that this will be long: a client that takes tasks is answered with one now.

        Args:
            required: whether the call is of no use otherwise.

        Raises:
            Interrupted: let it pass: it is required, and the client takes none.
        """

    async def ask(self, asks: Mapping[str, Ask], *, strict: bool = False) -> dict[str, Any]:
        """Ask, and wait for all answers, by the same keys.

        The tool may be run again from its beginning to get them: ask before you act, and
        the same again in the same order.

        Args:
            asks: by names that are unique within the call.
            strict: only an answer to a question that was asked for this very call counts.

        Raises:
            DeniedError: the client cannot be asked so, or did not answer.
            Interrupted: let it pass: the client asks, and calls again.
        """


class Context(msgspec.Struct, frozen=True, gc=False):
    """The facts of one call, for the tool that runs it.

    Attributes:
        caller: who calls.
        session: the `edged.registry.Session` of the call, or None.
        call_id: unique for the daemon's life.
        timeout_s: what the caller asked for, never above the tool's own.
        update: sends progress; each replaces the one before.
        services: the daemon's long-lived parts (`edged.services.Services`).
        call: runs another tool with this caller's rights.
        promote: makes hidden tools callable in this session for N turns.
        masked: secrets of this call and those around it; never in what comes out.
        is_watched: whether anyone looks at the updates.
        client: what the calling program takes beside a result; None for nothing.
        share: what is held for the call in memory is counted by, until it is over.
    """

    caller: Caller
    session: Any
    call_id: str
    timeout_s: float
    update: Callable[[list[Block]], None]
    services: Any
    call: Callable[[str, bytes], Awaitable[Result]]
    promote: Callable[[list[str], int], None]
    masked: tuple[str, ...] = ()
    is_watched: bool = True
    client: Client | None = None
    share: Share | None = None


class Hints(msgspec.Struct, frozen=True):
    """What a tool does to the world (MCP's annotations)."""

    read_only: bool = False
    destructive: bool = True
    idempotent: bool = False
    open_world: bool = True


READS = Hints(read_only=True, destructive=False, idempotent=True, open_world=False)
ACTS = Hints(read_only=False, destructive=False, idempotent=True, open_world=False)


class Permissions(msgspec.Struct, frozen=True):
    """What a sandboxed tool may use, as `describe` shows it."""

    network: bool = False
    devices: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    resources: tuple[str, ...] | Literal["all"] = ()
    timeout_s: float = 60
    memory_max: int = 0


class Tool:
    """One tool as the registry keeps it. Immutable but for its lazy parts.

    `renew` is asked before each call of a user whether the files behind the tool changed;
    when it says so, the registry has the new tool. `own_deadline` marks a tool
    that keeps the deadline it is handed by itself. `cut` false: the text goes out
    as it is. `status` disabled is the configuration's word, blocked the tool's own.
    `requires` names the families (`edged.registry.FAMILIES`) that must be on.
    `output_schema` is of the structured value of every result that is no failure; None
    where there may be none. `relays`: it does nothing but call another, which may ask its
    client as if it were called itself. `via`: instances of edged that it comes through, the
    nearest first (`edged.instance`).
    """

    __slots__ = (
        "_decoder",
        "_fields",
        "_make_schema",
        "_make_type",
        "_mirrored",
        "_schema",
        "_type",
        "aliases",
        "arguments_max",
        "body",
        "category",
        "config_key",
        "cut",
        "description",
        "hidden",
        "hints",
        "keep_end",
        "label",
        "name",
        "output_schema",
        "own_deadline",
        "permissions",
        "problem",
        "reason_code",
        "relays",
        "renew",
        "requires",
        "run",
        "sandbox",
        "sensitive",
        "source",
        "status",
        "timeout_s",
        "version",
        "via",
        "warnings",
    )

    def __init__(
        self,
        name: str,
        run: Run,
        *,
        description: str,
        make_type: Callable[[], type[msgspec.Struct]],
        make_schema: Callable[[], dict[str, Any]] | None = None,
        renew: Callable[[str], bool] | None = None,
        label: str = "",
        category: str = "system",
        config_key: str = "",
        source: str = "built-in",
        hints: Hints | None = None,
        sensitive: frozenset[str] = frozenset(),
        aliases: dict[str, str] | None = None,
        timeout_s: float = 60.0,
        body: str = "",
        permissions: Permissions | None = None,
        status: Status = "enabled",
        reason_code: str = "",
        problem: str = "",
        warnings: tuple[str, ...] = (),
        version: int = 0,
        keep_end: bool = False,
        cut: bool = True,
        hidden: bool = False,
        own_deadline: bool = False,
        sandbox: str = "",
        arguments_max: int = ARGUMENTS_MAX,
        requires: tuple[str, ...] = (),
        output_schema: dict[str, Any] | None = None,
        relays: bool = False,
        via: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.run = run
        self.renew = renew
        self.description = description
        self._make_type = make_type
        self._make_schema = make_schema
        self._schema: dict[str, Any] | None = None
        self._mirrored: tuple[tuple[tuple[str, ...], str], ...] | None = None
        self._type: type[msgspec.Struct] | None = None
        self._decoder: msgspec.json.Decoder[Any] | None = None
        self._fields: dict[str, msgspec.structs.FieldInfo] | None = None
        self.label = label or name
        self.category = category
        self.config_key = config_key or name
        self.source = source
        self.hints = hints or Hints()
        self.sensitive = sensitive
        self.aliases = aliases or {}
        self.timeout_s = timeout_s
        self.body = body
        self.permissions = permissions
        self.status: Status = status
        self.reason_code = reason_code
        self.problem = problem
        self.warnings = warnings
        self.version = version
        self.keep_end = keep_end
        self.cut = cut
        self.hidden = hidden
        self.own_deadline = own_deadline
        self.sandbox = sandbox
        self.arguments_max = arguments_max
        self.requires = requires
        self.output_schema = output_schema
        self.relays = relays
        self.via = via

    @property
    def type(self) -> type[msgspec.Struct]:
        """The Struct of the arguments, built on first use."""
        if self._type is None:
            self._type = self._make_type()
        return self._type

    @property
    def fields(self) -> dict[str, msgspec.structs.FieldInfo]:
        """The inputs by their name on the wire; msgspec takes 50 µs to look them up."""
        if self._fields is None:
            self._fields = {f.encode_name: f for f in msgspec.structs.fields(self.type)}
        return self._fields

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of the arguments: a flat object, local references inlined."""
        if self._schema is None:
            make = self._make_schema
            self._schema = make() if make is not None else schema_of(self.type)
        return self._schema

    @property
    def mirrored(self) -> tuple[tuple[tuple[str, ...], str], ...]:
        """Inputs that HTTP clients of MCP repeat in headers: path, and `x-mcp-header`."""
        if self._mirrored is None:
            self._mirrored = tuple(_mirrored(self.schema, ()))
        return self._mirrored

    def decode(self, raw: bytes) -> msgspec.Struct:
        """The fast decode; raises msgspec's errors.

        Raises:
            TooLargeError: more than this tool takes; what is that large is not for it.
        """
        if len(raw) > self.arguments_max:
            limit = self.arguments_max >> 10
            raise TooLargeError(f"{self.name}: its inputs are over {limit} KiB")
        if self._decoder is None:
            self._decoder = msgspec.json.Decoder(self.type)
        return self._decoder.decode(raw)  # type: ignore[no-any-return]  # the decoder's type is built at run time

    def switched_off(self) -> Tool:
        """The same tool, disabled by the configuration."""
        copy = self._copy()
        copy.status = "disabled"
        return copy

    def out_of_sight(self) -> Tool:
        """The same tool, hidden by the configuration."""
        copy = self._copy()
        copy.hidden = True
        return copy

    def sandboxed(self, level: str, permissions: Permissions) -> Tool:
        """The same tool, which runs what it is told to in a sandbox of that level."""
        copy = self._copy()
        copy.sandbox, copy.permissions = level, permissions
        return copy

    def blocked(self, reason_code: str, problem: str) -> Tool:
        """The same tool, which cannot be used now; the reason says what it lacks."""
        copy = self._copy()
        copy.reason_code, copy.problem = reason_code, problem
        if copy.status == "enabled":
            copy.status = "blocked"
        return copy

    def _copy(self) -> Tool:
        copy = object.__new__(Tool)
        for slot in Tool.__slots__:
            setattr(copy, slot, getattr(self, slot))
        return copy


def tool(name: str, *, description: str = "", **facts: Any) -> Callable[[Run], Tool]:
    """Wrap `def name(params: Struct, ctx: Context)` into a `Tool`.

    The description is the first paragraph of the function's docstring where none
    is given; a plain `def` runs on the loop and must not wait.
    """

    def wrap(function: Run) -> Tool:
        doc = (function.__doc__ or "").strip().split("\n\n")[0]
        return Tool(
            name,
            function,
            description=description or " ".join(doc.split()),
            make_type=lambda: _params_of(function),
            **facts,
        )

    return wrap


def _params_of(function: Run) -> type[msgspec.Struct]:
    code = function.__code__
    hints = get_type_hints(function, include_extras=True)
    kind: type[msgspec.Struct] = hints[code.co_varnames[0]]
    return kind


def schema_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """JSON Schema of a Struct: `type: object` at the root and no `$ref` left.

    msgspec puts a reference at the root, and clients do not resolve references.
    """
    document = msgspec.json.schema(kind)
    definitions: dict[str, Any] = document.pop("$defs", {})

    def inline(node: Any) -> Any:
        if isinstance(node, list):
            return [inline(item) for item in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            name = str(node["$ref"]).rpartition("/")[2]
            rest = {k: v for k, v in node.items() if k != "$ref"}
            return {**inline(definitions[name]), **rest}
        return _plain({key: within(key, value) for key, value in node.items()})

    def within(key: str, value: Any) -> Any:
        # Names of inputs are no keywords: one may be called `enum` or `default`.
        if key == "properties":
            return {name: inline(one) for name, one in value.items()}
        return inline(value)

    root: dict[str, Any] = inline(document)
    for word in ("title", "description"):
        root.pop(word, None)
    if not root["required"]:
        del root["required"]
    root["additionalProperties"] = False
    return root


def _mirrored(schema: dict[str, Any], path: tuple[str, ...]) -> Iterator[Any]:
    for name, node in schema.get("properties", {}).items():
        if "x-mcp-header" in node:
            yield (*path, name), node["x-mcp-header"]
        yield from _mirrored(node, (*path, name))


_JSON_TYPES = {str: "string", int: "integer"}


def _plain(node: dict[str, Any]) -> dict[str, Any]:
    """An optional value as its own type, and enums with theirs."""
    if "anyOf" in node:
        real = [option for option in node["anyOf"] if option != {"type": "null"}]
        rest = {key: value for key, value in node.items() if key != "anyOf"}
        node = {**real[0], **rest} if len(real) == 1 else {"anyOf": real, **rest}
    if "enum" in node:
        values = [value for value in node["enum"] if value is not None]
        (kind,) = {type(value) for value in values}
        node = {"type": _JSON_TYPES[kind], **node, "enum": values}
    if node.get("default", 0) is None:
        del node["default"]
    return node
