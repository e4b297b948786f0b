"""Which tools there are, for whom, until when (contract, sections 4, 6 and 9)."""

import msgspec
import pytest

from edged import results
from edged.errors import NotFoundError, UnknownToolError
from edged.icons import icons
from edged.registry import FORMATS, LISTS_MAX, PAGE, TURN_S, Registry, Session
from edged.testing.clock import FakeClock
from edged.tool import READS, Tool

ADA = "ada@example.org"


class City(msgspec.Struct, forbid_unknown_fields=True):
    city: str


def make(name, **facts):
    return Tool(
        name,
        lambda _params, _ctx: results.text(facts.get("source", "built-in")),
        description=facts.pop("description", f"Does {name}."),
        make_type=lambda: City,
        **facts,
    )


@pytest.fixture
def registry():
    return Registry()


@pytest.fixture
def clock():
    return FakeClock()


def stream(clock):
    """A session that sent `initialize`."""
    return Session("s", clock, by_clock=False)


def names(registry, user="local", promoted=()):
    return [t.name for t in registry.listed(user, frozenset(promoted))]


def states(registry, user="local"):
    return {(r.name, r.source): (r.status, r.reason_code) for r in registry.states(user)}


# Core and hidden --------------------------------------------------------------------------


def test_a_core_tool_is_always_there(registry):
    """Contract, section 9."""
    tool = make("read_file")
    registry.register(tool)
    assert registry.find("local", "read_file", None) is tool
    assert names(registry) == ["read_file"]


def test_a_group_is_replaced_whatever_became_of_its_tools(registry):
    """A name twice is one tool, and one that was taken away is missed by nobody."""
    registry.replace_group("g", [make("a"), make("a"), make("b")])
    registry.unregister("b")
    registry.replace_group("g", [make("c")])
    assert names(registry) == ["c"]


def test_a_hidden_tool_is_found_and_listed_only_while_promoted(registry, clock):
    """A hidden tool is callable only while promoted in the session."""
    registry.register(make("core"))
    registry.register(make("hidden", hidden=True))
    session, other = stream(clock), stream(clock)
    for scope in (None, session):
        with pytest.raises(UnknownToolError):
            registry.find("local", "hidden", scope)
    session.promote(["hidden"], 1)
    assert registry.find("local", "hidden", session).name == "hidden"
    assert names(registry, promoted=session.promoted()) == ["core", "hidden"]
    with pytest.raises(UnknownToolError):
        registry.find("local", "hidden", other)
    assert names(registry) == ["core"]


def test_an_expired_tool_reads_like_one_that_never_was(registry, clock):
    """Expired means "not found": the words tell nothing of hidden names."""
    registry.register(make("hidden", hidden=True))
    with pytest.raises(UnknownToolError) as hidden:
        registry.find("local", "hidden", stream(clock))
    with pytest.raises(UnknownToolError) as absent:
        registry.find("local", "absent", stream(clock))
    assert str(hidden.value).replace("hidden", "absent") == str(absent.value)


def test_an_unknown_name_brings_the_nearest_one(registry):
    """Errors say what to do."""
    registry.register(make("read_file"))
    with pytest.raises(UnknownToolError, match="did you mean 'read_file'"):
        registry.find("local", "readfile", None)
    with pytest.raises(UnknownToolError) as caught:
        registry.find("local", "z" * 100_000, None)
    assert len(str(caught.value)) < 200


def test_promoted_names_that_are_gone_are_not_listed(registry, clock):
    """An upstream may go away while its tools are promoted."""
    registry.register(make("core"))
    registry.register(make("hidden", hidden=True))
    session = stream(clock)
    session.promote(["hidden"], 5)
    registry.unregister("hidden")
    assert names(registry, promoted=session.promoted()) == ["core"]
    with pytest.raises(UnknownToolError):
        registry.find("local", "hidden", session)


def test_unregistering_what_is_not_there_changes_nothing(registry):
    """No new version, no notice."""
    before = registry.version
    registry.unregister("nothing")
    assert registry.version == before


# Turns ------------------------------------------------------------------------------------


def test_a_promotion_lasts_for_the_turns_after_its_own(clock):
    """A promotion to N lasts for the N turns after the one that promoted it."""
    session = stream(clock)
    session.promote(["a"], 2)
    for left in (True, True, False):
        session.turn()
        assert ("a" in session.promoted()) is left


def test_promoting_again_sets_the_turns_anew(clock):
    """It sets, it does not add."""
    session = stream(clock)
    session.promote(["a"], 2)
    session.turn()
    session.turn()
    session.promote(["a"], 1)
    session.turn()
    assert session.promoted() == {"a"}
    session.turn()
    assert not session.promoted()


def test_using_a_tool_does_not_renew_it(registry, clock):
    """Contract, section 9; calls do not count where turns are said."""
    registry.register(make("hidden", hidden=True))
    session = stream(clock)
    session.promote(["hidden"], 1)
    session.turn()
    for _ in range(5):
        assert registry.find("local", "hidden", session)
        session.call_started()
        session.call_ended()
    session.turn()
    assert not session.promoted()


def test_a_round_of_overlapping_calls_is_the_turn_of_a_silent_session(clock):
    """For a session that never says so, a turn is one round of overlapping tool calls."""
    session = stream(clock)
    session.call_started()  # the search
    session.promote(["a"], 1)
    session.call_started()  # overlaps it
    session.call_ended()
    session.call_ended()
    assert session.promoted() == {"a"}
    session.call_started()
    session.call_started()
    session.call_ended()
    assert session.promoted() == {"a"}
    session.call_ended()
    assert not session.promoted()


def test_rounds_end_no_turns_once_they_are_said(clock):
    """A turn ends when the client says so."""
    session = stream(clock)
    session.turn()
    session.promote(["a"], 1)
    for _ in range(3):
        session.call_started()
        session.call_ended()
    assert session.promoted() == {"a"}


def test_the_first_said_turn_takes_the_place_of_the_rounds_before_it(clock):
    """What was promoted in a turn lasts for the turns after it, however many calls it had."""
    session = stream(clock)
    for _ in range(3):
        session.call_started()
        session.promote(["a"], 1)
        session.call_ended()
    for _ in range(2):
        session.call_started()
        session.call_ended()
    assert not session.promoted(), "nobody said so far that this is one turn"
    session.turn()
    assert session.promoted() == {"a"}
    session.turn()
    assert not session.promoted()


def test_turns_of_an_identity_last_ten_minutes(clock):
    """Where the session is the identity, only said turns count, or ten minutes each."""
    session = Session("", clock, by_clock=True)
    clock.advance(5 * TURN_S)
    session.promote(["a"], 1)
    session.call_started()
    session.call_ended()
    clock.advance(2 * TURN_S - 1)
    assert session.promoted() == {"a"}
    clock.advance(1)
    assert not session.promoted()


def test_a_said_turn_of_an_identity_begins_ten_minutes_anew(clock):
    """The turn that was said to be over is not counted again by the clock."""
    session = Session("", clock, by_clock=True)
    session.promote(["a"], 2)
    clock.advance(TURN_S - 1)
    session.turn()
    clock.advance(TURN_S - 1)
    assert session.promoted() == {"a"}
    session.turn()
    assert session.promoted() == {"a"}
    clock.advance(TURN_S)
    assert not session.promoted()


def test_a_jump_of_the_wall_clock_ends_no_turn(clock):
    """Intervals come from the monotonic clock; boards have no RTC."""
    session = Session("", clock, by_clock=True)
    session.promote(["a"], 1)
    clock.jump(1e9)
    assert session.promoted() == {"a"}


def test_many_turns_may_pass_unseen(clock):
    """An identity that was away for a day."""
    session = Session("", clock, by_clock=True)
    session.promote(["a"], 3)
    session.promote(["b"], 200)
    clock.advance(100 * TURN_S)
    assert session.promoted() == {"b"}


def test_a_session_is_told_of_promotion_and_expiry_and_of_nothing_else(clock):
    """Promotion and expiry send `notifications/tools/list_changed`."""
    told = []
    session = stream(clock)
    session.changed = lambda: told.append(set(session.promoted()))
    session.turn()
    session.promote([], 3)
    assert not told
    session.promote(["a"], 1)
    session.promote(["a"], 1)
    session.turn()
    assert told == [{"a"}]
    session.turn()
    assert told == [{"a"}, set()]


# Users, overriding, shadowing -------------------------------------------------------------


def test_a_users_tool_overrides_the_global_one_for_that_user_alone(registry):
    """Contract, section 3; T: last-writer-wins."""
    registry.replace_set("", [make("hello", source="/global")])
    registry.replace_set(ADA, [make("hello", source="/ada"), make("mine", source="/ada2")])
    assert registry.find(ADA, "hello", None).source == "/ada"
    assert registry.find("bob@example.org", "hello", None).source == "/global"
    assert names(registry, ADA) == ["hello", "mine"]
    assert names(registry) == ["hello"]


def test_what_is_overridden_is_shown_with_its_winner(registry):
    """Issue 2: shadowing made visible."""
    registry.replace_set("", [make("hello", source="/global")])
    registry.replace_set(ADA, [make("hello", source="/ada")])
    assert states(registry, ADA) == {
        ("hello", "/ada"): ("enabled", ""),
        ("hello", "/global"): ("blocked", "shadowed"),
    }
    (row,) = [r for r in registry.states(ADA) if r.source == "/global"]
    assert row.problem == "overridden by the tool of the same name in /ada"


def test_an_overridden_tool_that_is_blocked_as_well_is_shown_as_overridden(registry):
    """What it needs would not help it."""
    registry.replace_set(
        "", [make("t", source="/g", status="blocked", reason_code="requires_runtime")]
    )
    registry.replace_set(ADA, [make("t", source="/ada")])
    assert states(registry, ADA)["t", "/g"] == ("blocked", "shadowed")


def broken(name, source, code="invalid"):
    return make(name, source=source, status="blocked", reason_code=code, problem="line 3: no name")


def test_a_broken_directory_hides_nothing(registry):
    """Issue 2: listed with its reason; the global tool of the same name goes on."""
    registry.replace_set("", [make("hello", source="/global"), make("other")])
    registry.replace_set(ADA, [broken("hello", "/ada")])
    assert registry.find(ADA, "hello", None).source == "/global"
    assert states(registry, ADA) == {
        ("hello", "/ada"): ("blocked", "invalid"),
        ("hello", "/global"): ("enabled", ""),
        ("other", "built-in"): ("enabled", ""),
    }


def test_of_two_broken_ones_each_keeps_its_own_reason(registry):
    """Each is to be mended."""
    registry.replace_set("", [broken("hello", "/global")])
    registry.replace_set(ADA, [broken("hello", "/ada")])
    assert set(states(registry, ADA).values()) == {("blocked", "invalid")}
    assert names(registry, ADA) == []


def test_a_broken_global_tool_gives_way_to_a_users_whole_one(registry):
    """And is still shown."""
    registry.replace_set("", [broken("hello", "/global")])
    registry.replace_set(ADA, [make("hello", source="/ada")])
    assert states(registry, ADA) == {
        ("hello", "/ada"): ("enabled", ""),
        ("hello", "/global"): ("blocked", "invalid"),
    }


def test_names_of_registered_tools_are_reserved(registry):
    """Contract, section 10: names of built-in tools are reserved."""
    registry.register(make("exec"))
    registry.register(make("upstream", hidden=True))
    assert registry.reserved() == {"exec", "upstream"}


def test_a_tool_registered_later_takes_the_name_and_shows_the_loser(registry):
    """A built-in one always wins, whatever came first."""
    registry.replace_set("", [make("exec", source="/global")])
    registry.register(make("exec"))
    assert registry.find("local", "exec", None).source == "built-in"
    assert states(registry)["exec", "/global"] == ("blocked", "shadowed")
    registry.register(make("exec", hidden=True))
    assert states(registry)["exec", "/global"] == ("blocked", "shadowed")
    assert names(registry) == []


def test_a_tool_of_a_reserved_name_is_shown_and_never_called(registry, clock):
    """Contract, section 10: a row with its reason, whether the name is hidden or not."""
    registry.register(make("exec"))
    registry.register(make("upstream", hidden=True))
    taken = [broken(name, "/a", "reserved_name") for name in ("exec", "upstream")]
    registry.replace_set("", taken)
    assert states(registry) == {
        ("exec", "built-in"): ("enabled", ""),
        ("exec", "/a"): ("blocked", "reserved_name"),
        ("upstream", "built-in"): ("enabled", ""),
        ("upstream", "/a"): ("blocked", "reserved_name"),
    }
    assert names(registry) == ["exec"]
    session = Session("s", clock, by_clock=False)
    session.promote(["upstream"], 1)
    assert registry.find("local", "upstream", session).source == "built-in"


def test_a_global_name_is_known_only_once_the_users_own_tools_are(registry):
    """Else a call right after the start would run the global tool in place of the user's."""
    registry.register(make("gpio"))
    registry.replace_set("", [make("hello")])
    assert registry.has(ADA, "gpio")
    assert not registry.has(ADA, "hello")
    registry.replace_set(ADA, [])
    assert registry.has(ADA, "hello")
    assert not registry.has(ADA, "new")


def test_the_last_of_a_name_in_one_directory_wins(registry):
    """Contract, section 10: the same name twice, the last in sorted order, the other shown."""
    registry.replace_set("", [make("t", source="/1"), make("t", source="/2")])
    assert registry.find("local", "t", None).source == "/2"
    assert states(registry) == {("t", "/1"): ("blocked", "shadowed"), ("t", "/2"): ("enabled", "")}
    registry.replace_set("", [make("t", source="/1"), broken("t", "/2")])
    assert states(registry) == {("t", "/1"): ("enabled", ""), ("t", "/2"): ("blocked", "invalid")}


# States and switches ----------------------------------------------------------------------


def test_states_carry_what_the_management_list_shows(registry):
    """P, List All Tools; contract, section 6: category and `config_key` for every tool."""
    registry.register(make("i2c", category="hardware", config_key="i2c", label="I2C"))
    (row,) = registry.states("local")
    assert msgspec.to_builtins(row) == {
        "name": "i2c",
        "description": "Does i2c.",
        "category": "hardware",
        "config_key": "i2c",
        "status": "enabled",
        "reason_code": "",
        "label": "I2C",
        "source": "built-in",
        "hidden": False,
        "problem": "",
        "sandbox": "",
    }


def test_every_tool_is_in_the_full_list_sorted_by_name(registry):
    """Hidden, disabled and blocked ones too."""
    registry.register(make("b", hidden=True))
    registry.register(make("c").switched_off())
    registry.replace_set("", [broken("a", "/a")])
    assert [(r.name, r.status, r.hidden) for r in registry.states("local")] == [
        ("a", "blocked", False),
        ("b", "enabled", True),
        ("c", "disabled", False),
    ]


def switch(registry, name, enabled):
    change = registry.switch(name, enabled, "local")
    registry.set_switches(change.switches)
    return change.switched, change.blocked


def test_an_owners_switch_wins_over_the_configuration(registry):
    """Contract, section 3: a later act of the owner wins over YAML."""
    registry.register(make("on"))
    registry.register(make("off").switched_off())
    switch(registry, "on", False)
    switch(registry, "off", True)
    assert {r.name: r.status for r in registry.states("local")} == {
        "on": "disabled",
        "off": "enabled",
    }
    assert names(registry) == ["off"]
    switch(registry, "on", True)
    assert names(registry) == ["off", "on"]


def test_switches_outlive_the_tools_they_are_about(registry):
    """They are stored by name and used from the start."""
    again = Registry({"x": False})
    again.register(make("x"))
    assert names(again) == []


def test_no_switch_makes_a_blocked_tool_callable(registry):
    """What it lacks is still lacking, also where the configuration switched it off."""
    need = {"reason_code": "requires_runtime", "problem": "no node"}
    registry.replace_set(
        "", [make("a", status="blocked", **need), make("b", status="disabled", **need)]
    )
    assert states(registry)["b", "built-in"] == ("disabled", "")
    switch(registry, "a", True)
    switch(registry, "b", True)
    assert set(states(registry).values()) == {("blocked", "requires_runtime")}


def test_what_is_not_there_cannot_be_switched(registry):
    """P: 404."""
    with pytest.raises(NotFoundError, match="no tool named 'nothing'"):
        registry.switch("nothing", True, "local")


def test_tools_of_a_family_that_is_off_are_blocked_with_its_reason(registry):
    """P: `requires_skills`; the answer names what is of no use from then on."""
    registry.register(make("find_skills", requires=("skills",)))
    registry.register(make("install_skill", requires=("skills",)).switched_off())
    registry.register(make("other"))
    assert switch(registry, "skills", False) == ((), ("find_skills",))
    assert states(registry)["find_skills", "built-in"] == ("blocked", "requires_skills")
    assert states(registry)["install_skill", "built-in"] == ("disabled", "")
    row = next(r for r in registry.states("local") if r.name == "find_skills")
    assert row.problem == "skills is switched off: edged tools --enable find_skills"
    assert names(registry) == ["other"]
    assert switch(registry, "skills", False) == ((), ())
    assert switch(registry, "skills", True) == ((), ())
    assert names(registry) == ["find_skills", "other"]


def test_a_tool_that_is_switched_on_gets_what_it_requires(registry):
    """P: discovery tools need `mcp` and `mcp.discovery`; both are named."""
    registry = Registry({}, {"mcp": False, "mcp.discovery": False, "skills": False})
    registry.register(make("search", requires=("mcp", "mcp.discovery")))
    assert states(registry)["search", "built-in"] == ("blocked", "requires_mcp_discovery")
    assert switch(registry, "search", True) == (("mcp", "mcp.discovery"), ())
    assert states(registry)["search", "built-in"] == ("enabled", "")
    assert switch(registry, "mcp.discovery", False) == ((), ("search",))
    assert switch(registry, "search", True) == (("mcp.discovery",), ())
    assert switch(registry, "mcp", False) == ((), ("search",))
    assert switch(registry, "mcp.discovery", True) == (("mcp",), ())
    assert switch(registry, "search", True) == ((), ())


def test_a_switch_is_the_config_keys(registry):
    """P: `web_search` is switched by `web`, and not by its own name."""
    registry.register(make("web_search", config_key="web"))
    registry.register(make("web_fetch"))
    assert registry.switch("web_search", False, "local").switches == {"web": False}
    switch(registry, "web_search", False)
    assert names(registry) == ["web_fetch"]


def test_a_directorys_tool_that_is_hidden_is_found_only_while_promoted(registry, clock):
    """Contract, section 9, for tools of every kind."""
    registry.replace_set("", [make("deep", hidden=True, source="/a"), make("flat", source="/a")])
    assert not registry.has(ADA, "deep")
    registry.replace_set(ADA, [make("flat", hidden=True, source="/b")])
    assert names(registry) == ["flat"]
    assert names(registry, ADA) == []
    assert registry.has(ADA, "deep")
    session = stream(clock)
    session.promote(["deep"], 1)
    assert registry.find(ADA, "deep", session).source == "/a"
    registry.register(make("deep", hidden=True))
    assert states(registry)["deep", "/a"] == ("blocked", "shadowed")


def test_a_hidden_tool_that_is_switched_off_is_not_listed_when_promoted(registry):
    """The owner's word holds for every kind of tool."""
    registry.register(make("core"))
    registry.register(make("hidden", hidden=True))
    switch(registry, "hidden", False)
    assert names(registry, promoted=["hidden"]) == ["core"]


# Lists ------------------------------------------------------------------------------------


def test_lists_are_sorted_by_name_wherever_tools_come_from(registry):
    """Contract, section 9: so that prompt caches hold."""
    registry.register(make("m"))
    registry.register(make("b", hidden=True))
    registry.replace_set("", [make("z"), make("a")])
    registry.replace_set(ADA, [make("n")])
    assert names(registry, ADA, promoted=["b"]) == ["a", "b", "m", "n", "z"]


def decoded(registry, form, promoted=frozenset()):
    (page,) = registry.pages("local", form, promoted)
    return msgspec.json.decode(page)


SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


def test_each_provider_gets_the_shape_of_its_own_interface(registry):
    """OpenAI chat completions (`tools[].function`) and responses (flat, `strict` said);
    Anthropic messages (`input_schema`); MCP, tools/list.
    """  # noqa: D205, D209  one source a line
    registry.register(make("weather", label="Weather", description="Tells it.", hints=READS))
    function = {"name": "weather", "description": "Tells it.", "parameters": SCHEMA}
    assert decoded(registry, "openai") == [{"type": "function", "function": function}]
    assert decoded(registry, "openai-responses") == [
        {"type": "function", "strict": False, **function}
    ]
    assert decoded(registry, "anthropic") == [
        {"name": "weather", "description": "Tells it.", "input_schema": SCHEMA}
    ]
    assert decoded(registry, "mcp") == [
        {
            "name": "weather",
            "title": "Weather",
            "description": "Tells it.",
            "inputSchema": SCHEMA,
            "icons": icons("system"),
            "annotations": {
                "title": "Weather",
                "readOnlyHint": True,
                "destructiveHint": False,
                "idempotentHint": True,
                "openWorldHint": False,
            },
        }
    ]


@pytest.mark.parametrize("form", FORMATS)
def test_a_list_without_tools_is_an_empty_array(registry, form):
    """One page at least."""
    assert registry.pages("local", form, frozenset()) == [b"[]"]


def test_lists_are_the_same_bytes_until_the_version_changes(registry):
    """Issue 2: snapshots by version with the encoded list cached as bytes."""
    registry.register(make("a"))
    registry.register(make("h", hidden=True))
    first = registry.pages("local", "mcp", frozenset())
    promoted = registry.pages("local", "mcp", frozenset({"h"}))
    assert registry.pages("local", "mcp", frozenset()) is first
    assert registry.pages("local", "mcp", frozenset({"h"})) is promoted
    assert len(msgspec.json.decode(promoted[0])) == 2
    before = registry.version
    registry.register(make("b"))
    assert registry.version > before
    assert registry.pages("local", "mcp", frozenset()) is not first


def test_only_a_bounded_number_of_lists_is_kept_and_those_in_use_are(registry):
    """Each session may have promoted something else."""
    registry.register(make("a"))
    base = registry.pages("local", "mcp", frozenset())
    for number in range(3 * LISTS_MAX):
        registry.pages("local", "mcp", frozenset({f"gone{number}"}))
        assert registry.pages("local", "mcp", frozenset()) is base
    assert len(registry.view("local").lists) == LISTS_MAX


def test_a_long_list_comes_in_pages(registry):
    """MCP, pagination."""
    registry.replace_set("", [make(f"t{i:05}") for i in range(2 * PAGE + 1)])
    pages = [msgspec.json.decode(p) for p in registry.pages("local", "mcp", frozenset())]
    assert [len(page) for page in pages] == [PAGE, PAGE, 1]
    assert [t["name"] for page in pages for t in page] == names(registry)


def test_every_change_is_told(registry):
    """Doors send `list_changed`, the daemon an event."""
    told = []
    registry.on_change.append(lambda: told.append(registry.version))
    registry.register(make("a"))
    registry.replace_set("", [])
    switch(registry, "a", False)
    registry.unregister("a")
    registry.touch()
    assert told == sorted(set(told))
    assert len(told) == 5
