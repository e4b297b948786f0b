"""`tool_describe` and `tool_call` (contract, section 9)."""

import asyncio

import msgspec
import pytest

from edged import results
from edged.registry import Session
from edged.tool import Context, Permissions, Tool, tool
from edged.tools import discovery


class Login(msgspec.Struct, forbid_unknown_fields=True):
    user: str = ""
    password: str = ""
    number: int = 0


@tool("login", sensitive=frozenset({"password"}))
def login(params: Login, _ctx: Context) -> results.Result:
    """Take a secret."""
    return results.text(f"{params.user} {params.number}", structured={"n": params.number})


@pytest.fixture(autouse=True)
def tools(core):
    core.add(*discovery.TOOLS, login)


async def ask(core, tool_name, session=None, **arguments):
    raw = msgspec.json.encode(arguments)
    return await core.call(tool_name, raw, core.agent, session)


async def test_tool_describe_shows_the_body_on_demand(core):
    """Contract, section 13: the body of a tool is given on demand."""
    core.add(
        Tool(
            "hello",
            login.run,
            # As discovery makes it: the body's first paragraph follows.
            description="Says hello.\n\nUsage.",
            make_type=lambda: Login,
            source="/tools/hello",
            body="\n# Hello\n\nUsage.\n",
            permissions=Permissions(network=True),
            sensitive=frozenset({"password"}),
        )
    )
    result = await ask(core, "tool_describe", name="hello")
    lines = result.for_llm.split("\n")
    assert lines[:2] == ["hello: Says hello.", "State: enabled; from /tools/hello"]
    assert lines[2].startswith('Inputs (JSON Schema): {"type":"object"')
    assert lines[3] == "Sensitive inputs, never logged: password"
    assert '"network":true' in lines[4]
    assert lines[5:] == ["", "# Hello", "", "Usage."]
    assert result.structured["sensitive"] == ["password"]
    assert result.structured["schema"]["properties"].keys() == {"user", "password", "number"}
    assert "body" not in result.structured


async def test_tool_describe_says_why_a_tool_cannot_be_called(core):
    """The agent can tell its user what to do."""
    core.add(
        Tool(
            "hello",
            login.run,
            description="Says hello.",
            make_type=lambda: Login,
            status="blocked",
            reason_code="requires_runtime",
            problem="no Node: install it",
        )
    )
    result = await ask(core, "tool_describe", name="hello")
    assert "State: blocked (requires_runtime); from built-in" in result.for_llm
    assert "Problem: no Node: install it" in result.for_llm


async def test_tool_describe_finds_what_its_session_promoted(core):
    """Contract, section 9: also in the session of a stream."""
    core.add(tool("deep", hidden=True)(login.run))
    session = Session("s", core.clock, by_clock=False)
    missing = await ask(core, "tool_describe", session, name="deep")
    assert (missing.is_error, missing.for_llm) == (True, "no tool named 'deep'")
    session.promote(["deep"], 5)
    assert not (await ask(core, "tool_describe", session, name="deep")).is_error
    assert (await ask(core, "tool_describe", name="deep")).is_error


async def test_tool_call_reaches_a_promoted_tool(core):
    """Contract, section 9: what the stateless revision's list does not show."""
    core.add(tool("deep", hidden=True)(login.run))
    session = core.control.session(core.agent)
    session.promote(["deep"], 2)
    inner = {"user": "ada", "number": 2**63 + 1}
    result = await ask(core, "tool_call", session, name="deep", arguments=inner)
    assert (result.is_error, result.for_llm) == (False, f"ada {2**63 + 1}")
    assert result.structured == {"n": 2**63 + 1}


@pytest.mark.parametrize("arguments", [{}, {"arguments": None}, {"arguments": {}}])
async def test_tool_call_needs_no_arguments(core, arguments):
    """Null means absent."""
    assert not (await ask(core, "tool_call", name="login", **arguments)).is_error


async def test_tool_call_tells_what_was_wrong_inside(core):
    """Every fault of the inner call, for the model to mend."""
    result = await ask(core, "tool_call", name="login", arguments={"usr": "ada", "number": "x"})
    assert result.is_error
    assert "login: usr: is not an input" in result.for_llm
    assert "number: must be an integer" in result.for_llm
    assert (await ask(core, "tool_call", name="nothing")).for_llm.startswith("no tool named")


async def test_sensitive_inputs_of_the_inner_tool_are_in_neither_record(core):
    """Contract, section 7: absent from the audit trail."""
    inner = {"user": "ada", "password": "hunter2-hunter2"}
    await ask(core, "tool_call", name="login", arguments=inner)
    assert [(r.tool, r.arguments) for r in core.audited()] == [
        ("login", {"user": "ada"}),
        ("tool_call", {"name": "login"}),
    ]
    assert "hunter2" not in str(core.audited())


async def test_tool_call_that_calls_itself_ends(core):
    """Depth is bounded."""
    arguments = {"name": "login"}
    for _ in range(10):
        arguments = {"name": "tool_call", "arguments": arguments}
    result = await ask(core, "tool_call", **arguments)
    assert result.is_error
    assert "tools called tools 4 deep" in result.for_llm


async def test_an_inner_call_ends_at_the_outer_limit(core):
    """The caller's limit holds for all of it."""
    ended = asyncio.Event()

    @tool("slow")
    async def slow(params: Login, ctx: Context) -> results.Result:
        """Waits."""
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    core.add(slow)
    raw = msgspec.json.encode({"name": "slow"})
    result = await core.call("tool_call", raw, core.agent, timeout_s=0.01)
    assert result.for_llm == "timed out after 0.01 s"
    await ended.wait()
