"""`tool_describe` and `tool_call` (contract, section 9)."""

import asyncio
import contextlib
from typing import Annotated

import msgspec
import pytest

from edged import results
from edged.errors import InvalidArgumentsError
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


# Searching --------------------------------------------------------------------------------


class Issue(msgspec.Struct, forbid_unknown_fields=True):
    title: str


def hidden(name, description, kind=Issue):
    return Tool(
        name, lambda params, _ctx: results.text(f"made {params.title}"),
        description=description, make_type=lambda: kind, hidden=True,
    )  # fmt: skip


CREATE = hidden("mcp_github_create_issue", "Opens a new one in a repository.")
LIST = hidden("mcp_github_list_pulls", "Lists pull requests.")
READ = hidden("mcp_files_readFile", "Reads a file.")
SEARCHES = {"tool_search_tool_regex": "pattern", "tool_search_tool_bm25": "query"}


@pytest.fixture
def upstream(core):
    core.add(CREATE, LIST, READ)


@pytest.mark.parametrize("search", SEARCHES)
async def test_a_search_answers_with_what_a_call_needs_and_unlocks_it(core, upstream, search):
    """Contract, section 9: the full schema of each hit; promoted for the configured turns."""
    session = Session("s", core.clock, by_clock=False)
    told = []
    session.changed = lambda: told.append(session.promoted())
    arguments = {SEARCHES[search]: "issue"}
    result = await ask(core, search, session, **arguments)
    assert result.structured == {
        "tools": [
            {
                "name": "mcp_github_create_issue",
                "description": "Opens a new one in a repository.",
                "inputSchema": CREATE.schema,
            }
        ],
        "total": 1,
        "turns": 5,
    }
    assert result.silent
    first, row, last = result.for_llm.split("\n")
    assert first == "Found 1 tool:"
    assert msgspec.json.decode(row) == result.structured["tools"][0]
    assert last.startswith("Unlocked for the next 5 turns: call them by name or")
    assert told == [{"mcp_github_create_issue"}]
    made = await ask(core, "mcp_github_create_issue", session, title="A")
    assert made.for_llm == "made A"
    made = await ask(core, "tool_call", session, name=CREATE.name, arguments={"title": "B"})
    assert made.for_llm == "made B"
    for _ in range(5):
        session.turn()
    assert (await ask(core, "tool_describe", session, name=CREATE.name)).is_error is False
    session.turn()
    assert (await ask(core, "tool_describe", session, name=CREATE.name)).is_error
    assert told[-1] == frozenset()


@pytest.mark.parametrize("search", SEARCHES)
async def test_a_search_without_a_hit_is_no_error_and_unlocks_nothing(core, upstream, search):
    """Facts, section 11: "No tools found matching the query."."""
    session = Session("s", core.clock, by_clock=False)
    result = await ask(core, search, session, **{SEARCHES[search]: "weather"})
    assert (result.is_error, session.promoted()) == (False, frozenset())
    assert result.for_llm.startswith("No tools found matching the query.")


@pytest.mark.parametrize("search", SEARCHES)
async def test_each_search_takes_the_other_ones_word(core, upstream, search):
    """Contract, section 8: spellings that clients use."""
    for name in ("pattern", "query"):
        assert "create_issue" in (await ask(core, search, **{name: "issue"})).for_llm


async def test_listed_and_unusable_tools_are_not_found(core, upstream):
    """What is listed needs no search; what cannot be called is of no use."""
    core.add(tool("login_issue")(login.run), hidden("issue_off", "Is off.").switched_off())
    result = await ask(core, "tool_search_tool_regex", pattern="issue")
    assert [row["name"] for row in result.structured["tools"]] == ["mcp_github_create_issue"]


async def test_more_hits_than_are_shown_are_counted(core):
    """`max_search_results`: 5; the model is told how to see the others."""
    core.add(*(hidden(f"deep_{n}", "Goes deep.") for n in range(7)))
    session = Session("s", core.clock, by_clock=False)
    result = await ask(core, "tool_search_tool_bm25", session, query="deep")
    assert result.structured["total"] == 7
    assert session.promoted() == {f"deep_{n}" for n in range(5)}
    assert "\n7 match: narrow the search to see others.\n" in result.for_llm


async def test_schemas_that_are_too_long_are_left_to_tool_describe(core):
    """A schema that is cut is none; the answer stays below the limit of a text."""
    long = msgspec.Meta(description="x" * 15_000)
    kind = msgspec.defstruct("Long", [("title", Annotated[str, long])])
    core.add(*(hidden(f"long_{n}", "Is long.", kind) for n in range(4)))
    session = Session("s", core.clock, by_clock=False)
    result = await ask(core, "tool_search_tool_bm25", session, query="long")
    assert ["inputSchema" in row for row in result.structured["tools"]] == [
        True,
        True,
        False,
        False,
    ]
    assert "Ask tool_describe for the inputs" in result.for_llm
    assert result.truncated is None
    assert session.promoted() == {f"long_{n}" for n in range(4)}


@pytest.mark.parametrize("pattern", ["(", "[", "a{9,1}", "(?P<x>a)(?P<x>b)", "*", "\\"])
async def test_what_is_no_pattern_is_told_why(core, upstream, pattern):
    """The model can mend it."""
    result = await ask(core, "tool_search_tool_regex", pattern=pattern)
    assert result.is_error
    assert result.for_llm.startswith("pattern: is no regular expression: ")


@pytest.mark.parametrize("pattern", ["", "  ", "x" * 201])
async def test_a_pattern_is_neither_blank_nor_long(core, upstream, pattern):
    """Facts, section 11: non-blank, at most 200 characters."""
    raw = msgspec.json.encode({"pattern": pattern})
    with contextlib.suppress(InvalidArgumentsError):
        assert (await core.call("tool_search_tool_regex", raw, core.agent)).is_error


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
