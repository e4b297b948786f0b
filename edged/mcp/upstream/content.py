"""Results of other servers as results of edged; what cannot be shown is told, never lost.

Pure. Long parts become media on the road of every result (`edged.results`).
"""

from __future__ import annotations

from typing import Any

import msgspec

from edged.mcp.client import Called
from edged.results import Block, Resource, ResourceLink, Result, Text

_UNKNOWN_MAX = 20_000
"""Characters of a block of a kind that is not known."""


def result(called: Called) -> Result:
    """What a call came to."""
    content = called.content
    if called.result_type != "complete":
        return Result([Text(_as_text(msgspec.to_builtins(called)))])
    blocks = [_block(item) for item in content]
    structured = called.structured_content
    if not blocks and structured is not None:
        blocks.append(Text(_as_text(structured)))
    # What a failure has of structure need not fit what the tool declares.
    return Result(
        blocks, is_error=called.is_error, structured=None if called.is_error else structured
    )


def _block(item: Any) -> Block:
    if isinstance(item, dict) and item.get("type") == "text" and len(item) == 2:
        text = item.get("text")
        if isinstance(text, str):
            return Text(text)
    try:
        block: Block = msgspec.convert(item, Block)
    except msgspec.ValidationError:
        return Text(_as_text(item))
    if isinstance(block, ResourceLink) and not block.uri:
        return Text(_as_text(item))
    if isinstance(block, Resource) and not isinstance(block.resource.get("uri"), str):
        block.resource["uri"] = "resource:"
    return block


def _as_text(value: Any) -> str:
    """A value of another kind, as JSON."""
    text = msgspec.json.encode(value).decode("utf-8", "replace")
    return text if len(text) <= _UNKNOWN_MAX else f"{text[:_UNKNOWN_MAX]}…"
