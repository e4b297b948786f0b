"""`echo`: what peers and floors are measured with (contract, section 12)."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from edged.results import Result, Text
from edged.tool import READS, Context, tool


class Echo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Inputs of `echo`."""

    text: Annotated[str, Meta(description="What to return.")]


@tool("echo", label="Echo", hints=READS, cut=False)
def echo(params: Echo, _ctx: Context) -> Result:
    """Return the text that was sent."""
    return Result([Text(params.text)])


TOOLS = (echo,)
