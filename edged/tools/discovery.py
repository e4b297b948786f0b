"""Tools about tools: to describe, call and find them (contract, section 9)."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from edged import results
from edged.errors import Fault, InvalidArgumentsError
from edged.matcher import PATTERN_MAX
from edged.results import Result
from edged.tool import READS, Context, Hints, tool

Name = Annotated[str, Meta(description="The tool's name.", min_length=1, max_length=128)]


class Describe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Inputs of `tool_describe`."""

    name: Name


@tool("tool_describe", label="Describe a tool", category="discovery", hints=READS)
def tool_describe(params: Describe, ctx: Context) -> Result:
    """Show a tool's full documentation, inputs, permissions and state."""
    found = ctx.services.describe(ctx.caller, params.name, ctx.session)
    state = found.status + (f" ({found.reason_code})" if found.reason_code else "")
    # What follows in the description is the body's beginning, which stands below.
    about = found.description.partition("\n\n")[0] if found.body else found.description
    lines = [f"{found.name}: {about}", f"State: {state}; from {found.source}"]
    if found.problem:
        lines.append(f"Problem: {found.problem}")
    lines += ["Inputs (JSON Schema): " + msgspec.json.encode(found.schema).decode()]
    if found.sensitive:
        lines.append(f"Sensitive inputs, never logged: {', '.join(found.sensitive)}")
    if found.permissions is not None:
        lines.append("Permissions: " + msgspec.json.encode(found.permissions).decode())
    if found.body:
        lines += ["", found.body.strip()]
    structured = {k: v for k, v in msgspec.to_builtins(found).items() if k != "body"}
    return results.text("\n".join(lines), structured=structured)


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Inputs of `tool_call`."""

    name: Name
    arguments: Annotated[dict[str, Any], Meta(description="The tool's inputs.")] = {}


@tool(
    "tool_call",
    label="Call a tool",
    category="discovery",
    hints=Hints(),
    # The inner call's record has them, without the inner tool's sensitive ones.
    sensitive=frozenset({"arguments"}),
    timeout_s=3_660.0,
    cut=False,
    relays=True,
)
async def tool_call(params: Call, ctx: Context) -> Result:
    """Call a tool by name, also one that a search promoted and the list does not show."""
    return await ctx.call(params.name, msgspec.json.encode(params.arguments))


FOUND = {
    "type": "object",
    "properties": {
        "tools": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "description": {"type": "string"},
                    "inputSchema": {"type": "object"},
                },
                "required": ["name", "description"],
            },
        },
        "total": {"type": "integer", "description": "How many match."},
        "turns": {"type": "integer", "description": "For how many turns they are unlocked."},
    },
    "required": ["tools", "total", "turns"],
}

SCHEMAS_MAX = 40_000
"""Bytes of one answer's schemas: whole, or left to `tool_describe`, and never cut."""


class Pattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Inputs of `tool_search_tool_regex`."""

    pattern: Annotated[
        str,
        Meta(
            description="Python regular expression, matched anywhere in names and descriptions, "
            "without regard to case: github|issue, ^mcp_files_, create.*issue.",
            min_length=1,
            max_length=PATTERN_MAX,
        ),
    ]


@tool(
    "tool_search_tool_regex",
    label="Find tools by a pattern",
    description="Find tools that are not listed, by a regular expression. Answers with their "
    "names and inputs, and unlocks them for some turns.",
    category="discovery",
    config_key="mcp.discovery.use_regex",
    requires=("mcp", "mcp.discovery"),
    aliases={"query": "pattern", "regex": "pattern"},
    hints=READS,
    output_schema=FOUND,
)
async def tool_search_tool_regex(params: Pattern, ctx: Context) -> Result:
    """Search by a pattern, which runs where it can be ended."""
    if not params.pattern.strip():
        raise InvalidArgumentsError([Fault("pattern", "must not be blank")])
    return _unlocked(ctx, await ctx.services.finder.by_pattern(ctx.caller, params.pattern))


class Query(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Inputs of `tool_search_tool_bm25`."""

    query: Annotated[
        str,
        Meta(
            description="What the tool should do, in a few words: create a github issue.",
            min_length=1,
            max_length=1_000,
        ),
    ]


@tool(
    "tool_search_tool_bm25",
    label="Find tools by words",
    description="Find tools that are not listed, by words of what they do. Answers with their "
    "names and inputs, and unlocks them for some turns.",
    category="discovery",
    config_key="mcp.discovery.use_bm25",
    requires=("mcp", "mcp.discovery"),
    aliases={"pattern": "query", "text": "query"},
    hints=READS,
    output_schema=FOUND,
)
async def tool_search_tool_bm25(params: Query, ctx: Context) -> Result:
    """Search by words."""
    return _unlocked(ctx, await ctx.services.finder.by_words(ctx.caller, params.query))


def _unlocked(ctx: Context, found: Any) -> Result:
    """Promote what was found; the answer has all that a call needs."""
    if not found.tools:
        return results.text(
            "No tools found matching the query. Other words, or a broader pattern, may find one.",
            structured={"tools": [], "total": 0, "turns": found.turns},
        )
    ctx.promote([one.name for one in found.tools], found.turns)
    rows, size = [], 0
    for one in found.tools:
        row = {"name": one.name, "description": one.description, "inputSchema": one.schema}
        size += len(msgspec.json.encode(row))
        if size > SCHEMAS_MAX:
            del row["inputSchema"]
        rows.append(row)
    count, turns = len(rows), found.turns
    lines = [f"Found {count} tool{'s' * (count > 1)}:"]
    lines += [msgspec.json.encode(row).decode() for row in rows]
    if size > SCHEMAS_MAX:
        lines.append("Ask tool_describe for the inputs of those without a schema.")
    if found.total > count:
        lines.append(f"{found.total} match: narrow the search to see others.")
    lines.append(
        f"Unlocked for the next {turns} turn{'s' * (turns > 1)}: call them by name or, where your "
        "list does not show them, by tool_call with name and arguments."
    )
    structured = {"tools": rows, "total": found.total, "turns": turns}
    result = results.text("\n".join(lines), structured=structured)
    result.silent = True
    return result


TOOLS = (tool_describe, tool_call, tool_search_tool_regex, tool_search_tool_bm25)
