"""What every door offers beside calling (contract, sections 4 and 5)."""

import base64

import msgspec
import pytest

from edged import results
from edged.board import Board
from edged.bus.settings import AlarmConfig, BoardConfig, ChannelConfig, SensorConfig
from edged.bus.sim import SimBuses, SimI2c
from edged.control import MEDIA_PART, SESSIONS
from edged.drivers import bme280
from edged.errors import (
    DeniedError,
    InvalidArgumentsError,
    NotFoundError,
    StoreError,
    UnknownToolError,
)
from edged.registry import PAGE, Session
from edged.tool import Permissions, Tool


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    pass


def make(name, **facts):
    return Tool(
        name,
        lambda _params, _ctx: results.text(""),
        description=f"Does {name}.",
        make_type=lambda: Nothing,
        **facts,
    )


# Sessions ---------------------------------------------------------------------------------


async def test_a_session_is_the_identitys_or_has_a_name(core):
    """Contract, section 4."""
    named = msgspec.structs.replace(core.agent, session="s1")
    mine = core.control.session(core.agent)
    assert core.control.session(core.agent) is mine
    assert core.control.session(named) is core.control.session(named)
    assert core.control.session(named) is not mine
    assert core.control.session(core.owner) is not mine


async def test_a_name_that_two_users_chose_is_two_sessions(core):
    """Nobody reaches what another promoted."""
    one = msgspec.structs.replace(core.agent, session="s1")
    other = msgspec.structs.replace(core.owner, session="s1")
    assert core.control.session(one) is not core.control.session(other)


async def test_turns_of_an_identity_go_by_the_clock_and_of_a_named_session_by_rounds(core):
    """Contract, section 9."""
    identity = core.control.session(core.agent)
    named = core.control.session(msgspec.structs.replace(core.agent, session="s1"))
    for session in (identity, named):
        session.promote(["a"], 0)
        session.call_started()
        session.call_ended()
    assert identity.promoted() == {"a"}
    assert not named.promoted()


async def test_the_session_longest_unused_is_dropped(core):
    """Facts, fault 14: sessions are bounded."""
    mine = core.control.session(core.owner)
    for number in range(SESSIONS):
        core.control.session(msgspec.structs.replace(core.agent, session=str(number)))
        assert core.control.session(core.owner) is mine
    assert len(core.control._sessions) == SESSIONS
    again = core.control.session(msgspec.structs.replace(core.agent, session="0"))
    assert isinstance(again, Session)


async def test_many_sessions_of_one_user_cost_no_other_the_own(core):
    """What a session promoted would be gone with it."""
    theirs = core.control.session(msgspec.structs.replace(core.owner, session="kitchen"))
    for number in range(2 * SESSIONS):
        core.control.session(msgspec.structs.replace(core.agent, session=str(number)))
    again = core.control.session(msgspec.structs.replace(core.owner, session="kitchen"))
    assert again is theirs


# Describing -------------------------------------------------------------------------------


async def test_a_description_is_the_tool_whole(core):
    """Contract, section 2: schema, source, sandbox permissions and the body."""
    permissions = Permissions(network=True, timeout_s=5.0)
    core.add(
        make(
            "hello",
            label="Hello",
            category="user",
            source="/tools/hello",
            body="# Hello",
            permissions=permissions,
            warnings=("odd name",),
            version=3,
            sandbox="full",
        )
    )
    assert msgspec.to_builtins(core.control.describe(core.agent, "hello")) == {
        "name": "hello",
        "label": "Hello",
        "description": "Does hello.",
        "category": "user",
        "config_key": "hello",
        "status": "enabled",
        "reason_code": "",
        "problem": "",
        "source": "/tools/hello",
        "version": 3,
        "sandbox": "full",
        "permissions": msgspec.to_builtins(permissions),
        "warnings": ("odd name",),
        "schema": {"type": "object", "properties": {}, "additionalProperties": False},
        "body": "# Hello",
        "sensitive": (),
    }


async def test_what_cannot_be_called_can_be_described(core):
    """Disabled and blocked ones, with the reason; one that cannot be read has no inputs."""
    core.add(
        make("off").switched_off(),
        make("bad", status="blocked", reason_code="invalid", problem="TOOL.md:3: no name"),
    )
    assert core.control.describe(core.agent, "off").status == "disabled"
    bad = core.control.describe(core.agent, "bad")
    assert (bad.reason_code, bad.problem, bad.schema) == ("invalid", "TOOL.md:3: no name", {})


async def test_a_hidden_tool_is_described_to_its_session_and_to_owners(core):
    """Contract, section 9: not found otherwise."""
    core.add(make("deep", hidden=True), make("plain"))
    with pytest.raises(UnknownToolError):
        core.control.describe(core.agent, "deep")
    session = Session("s", core.clock, by_clock=False)
    session.promote(["deep"], 1)
    assert core.control.describe(core.agent, "deep", session).name == "deep"
    assert core.control.describe(core.owner, "deep").name == "deep"
    assert core.control.describe(core.owner, "plain").name == "plain"
    core.control.session(core.agent).promote(["deep"], 1)
    assert core.control.describe(core.agent, "deep").name == "deep"


# Switching --------------------------------------------------------------------------------


async def test_a_switch_is_stored_before_it_holds(core):
    """Contract, section 3: what changes at run time lives under the data directory."""
    core.add(make("say"))
    core.control.switch(core.owner, "say", False)
    assert core.store.load("tool-switches", dict[str, bool], {}) == {"say": False}
    assert (
        core.control.states(core.agent, core.control.session(core.agent))[0].status == "disabled"
    )


async def test_an_agent_switches_nothing(core):
    """Contract, section 4."""
    core.add(make("say"))
    with pytest.raises(DeniedError, match="only an owner may switch tools; uid 1000 is an agent"):
        core.control.switch(core.agent, "say", False)
    nobody = msgspec.structs.replace(core.agent, peer="")
    with pytest.raises(DeniedError, match=r"; ada@example.org is an agent"):
        core.control.switch(nobody, "say", False)
    assert core.control.states(core.agent, core.control.session(core.agent))[0].status == "enabled"


async def test_a_switch_names_what_it_switched_along_and_what_it_took_away(core):
    """P: dependencies of the tools; both are stored before it is answered."""
    core.add(make("find_skills", requires=("skills",)))
    done = core.control.switch(core.owner, "skills", False)
    assert msgspec.to_builtins(done) == {"status": "ok", "blocked": ("find_skills",)}
    assert core.control.describe(core.owner, "find_skills").problem == (
        "skills is switched off: edged tools --enable find_skills"
    )
    done = core.control.switch(core.owner, "find_skills", True)
    assert msgspec.to_builtins(done) == {"status": "ok", "switched": ("skills",)}
    kept = core.store.load("tool-switches", dict[str, bool], {})
    assert kept == {"skills": True, "find_skills": True}


async def test_what_an_owner_set_is_dropped_and_nothing_else(core):
    """Contract, section 3: `--reset KEY`; at once."""
    core.add(make("say"), make("hear"))
    core.control.switch(core.owner, "say", False)
    core.control.switch(core.owner, "hear", False)
    with pytest.raises(DeniedError):
        core.control.reset(core.agent, "tools.say.enabled")
    assert core.control.reset(core.owner, "tools.say") == {"tools.say.enabled": False}
    assert [tool.name for tool in core.registry.listed("local", frozenset())] == ["say"]
    assert core.store.load("tool-switches", dict[str, bool], {}) == {"hear": False}
    for key in ("tools.say.enabled", "tools.hea", ""):
        with pytest.raises(NotFoundError, match=r"there is: tools\.hear\.enabled"):
            core.control.reset(core.owner, key)
    core.control.reset(core.owner, "tools")
    with pytest.raises(NotFoundError, match="no owner set"):
        core.control.reset(core.owner, "tools")


async def test_what_is_not_there_cannot_be_switched(core):
    """And nothing is stored."""
    with pytest.raises(NotFoundError):
        core.control.switch(core.owner, "nothing", False)
    assert core.store.load("tool-switches", dict[str, bool], {}) == {}


async def test_a_switch_that_cannot_be_stored_changes_nothing(core, tmp_path):
    """Law: state is written by one owner, atomically."""
    core.add(make("say"))
    (tmp_path / "state").write_text("in the way")
    with pytest.raises(StoreError):
        core.control.switch(core.owner, "say", False)
    assert core.control.states(core.owner, core.control.session(core.owner))[0].status == "enabled"


# Definitions, log, media, status ----------------------------------------------------------


async def test_definitions_are_one_array_however_many_pages_there_are(core):
    """Providers know no pages."""
    session = core.control.session(core.agent)
    assert core.control.definitions(core.agent, session, "openai") == b"[]"
    core.registry.replace_set("", [make(f"t{i:04}") for i in range(PAGE + 2)])
    rows = msgspec.json.decode(core.control.definitions(core.agent, session, "anthropic"))
    assert [r["name"] for r in rows] == [f"t{i:04}" for i in range(PAGE + 2)]


async def test_promoted_tools_are_among_the_definitions(core):
    """P: promoted tools appear in the next context."""
    core.add(make("deep", hidden=True))
    session = core.control.session(core.agent)
    session.promote(["deep"], 1)
    (row,) = msgspec.json.decode(core.control.definitions(core.agent, session, "mcp"))
    assert row["name"] == "deep"


async def test_an_unknown_format_is_refused_with_the_known_ones(core):
    """Contract, section 5."""
    session = core.control.session(core.agent)
    with pytest.raises(InvalidArgumentsError, match="must be one of mcp, openai, openai-resp"):
        core.control.definitions(core.agent, session, "xml")


async def test_an_owner_reads_all_of_the_log_and_an_agent_its_own(core):
    """Who called what is its caller's and the owner's."""
    core.add(make("say"))
    for caller in (core.owner, core.agent, core.agent):
        await core.call("say", b"", caller)
    assert len(core.control.log(core.owner, 10)) == 3
    assert [r.user for r in core.control.log(core.agent, 10)] == [core.agent.user] * 2
    assert len(core.control.log(core.owner, 1)) == 1


async def test_a_long_medium_comes_in_parts(core):
    """Lines are bounded; together the parts are the whole."""
    data = bytes(range(256)) * ((MEDIA_PART + 700) // 256)
    uri = core.media.put("local", data, "application/octet-stream", "dump")
    first = core.control.media(core.owner, uri, 0)
    assert (first["size"], first["next"]) == (len(data), MEDIA_PART)
    second = core.control.media(core.owner, uri, first["next"])
    assert second["next"] is None
    parts = [base64.b64decode(part["data"]) for part in (first, second)]
    assert b"".join(parts) == data
    assert core.control.media(core.owner, uri, len(data))["data"] == ""
    assert core.control.media(core.owner, uri, -1)["next"] == MEDIA_PART


async def test_a_medium_is_its_callers_or_the_owners(core):
    """Contract, section 6."""
    uri = core.media.put("local", b"x", "text/plain", "note")
    with pytest.raises(NotFoundError):
        core.control.media(core.agent, uri, 0)


async def test_status_counts_tools_by_their_state(core):
    """Contract, section 2: health of every part."""
    core.add(make("a"), make("b"), make("c").switched_off())
    core.clock.advance(90.0)
    status = core.control.status(core.agent)
    assert status["tools"] == {"enabled": 2, "disabled": 1}
    assert (status["user"], status["role"]) == ("ada@example.org", "agent")
    assert (status["uptime_s"], status["calls_running"], status["audit_lost"]) == (90.0, 0, 0)
    assert status["listen"] == ["unix:/x"]
    assert status["problems"] == []
    board = status["board"]
    assert board.keys() == {"sensors", "lines", "actuators", "alarms"}
    assert board["alarms"] == {}
    assert board["sensors"].keys() == {info.name for info in core.board.sensors}
    assert set(board["sensors"].values()) == {"unknown"}
    assert board["lines"] == {"button": "ok", "door": "ok", "led": "ok"}
    assert board["actuators"] == {"display": "ok", "relays": "ok", "window": "ok"}


async def test_status_names_channels_that_are_out_of_their_bounds(core):
    """With what they are now, in the unit that people know."""
    alarm = AlarmConfig(above=10)
    sensor = SensorConfig(
        driver="bme280", bus="i2c-1", channels={"temperature": ChannelConfig(alarm=alarm)}
    )
    chip = bme280.Sim(core.clock)
    board = Board(
        BoardConfig(sensors={"attic": sensor}),
        SimBuses(i2c={"i2c-1": SimI2c("i2c-1", {0x76: chip})}),
        core.clock,
        sleep=core.sleep,
    )
    core.control.services = msgspec.structs.replace(core.control.services, board=board)
    async with board:
        (reading,) = await board.read("attic", "temperature")
        shown = f"above: {reading.value:.1f} °C"
        assert core.control.status(core.agent)["board"]["alarms"] == {"attic temperature": shown}
