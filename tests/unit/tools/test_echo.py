"""`echo` (contract, section 12)."""

import msgspec

from edged.tools import echo


async def test_echo_returns_its_text(core):
    """Peers and floors are measured with it: whole, whatever its length."""
    core.add(*echo.TOOLS)
    for text in ("hi", "é\n\x00", "x y " * 300_000):
        call = core.dispatcher.start(core.agent, None, "echo", msgspec.json.encode({"text": text}))
        assert call.result.for_llm == text
        assert not call.result.is_error


def test_echo_takes_one_text():
    """The schema that benchmarks of other servers use."""
    assert echo.echo.schema == {
        "type": "object",
        "properties": {"text": {"type": "string", "description": "What to return."}},
        "required": ["text"],
        "additionalProperties": False,
    }
    assert echo.echo.hints.read_only
