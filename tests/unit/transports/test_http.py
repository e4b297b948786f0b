"""The pure parts of the HTTP door: addresses, rates, kept results, the API's description."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.dispatch import Call
from edged.errors import BusyError, ConfigError, NotFoundError, RateLimitedError
from edged.events import Events
from edged.identity import Caller
from edged.results import complete, text
from edged.testing.clock import FakeClock
from edged.transports._calls import AGE_MAX_S, BYTES_MAX, EVENT_MAX, KEPT, Calls, location
from edged.transports._limits import KEYS, OWNERS_PLACES, Places, Rates
from edged.transports._openapi import Paths, Route, document
from edged.transports._routes import ROUTES
from edged.transports.http import Address, parse

ADA = Caller("ada@example.org", "agent", "", "http")
BOB = Caller("bob@example.org", "agent", "", "http")
OWNER = Caller("local", "owner", "", "http")


# Addresses --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "address", "shown"),
    [
        ("127.0.0.1:8420", Address(host="127.0.0.1", port=8420), "127.0.0.1:8420"),
        ("localhost:8420", Address(host="127.0.0.1", port=8420), "127.0.0.1:8420"),
        ("[::1]:8420", Address(host="::1", port=8420), "[::1]:8420"),
        ("0.0.0.0:0", Address(host="0.0.0.0", port=0), "0.0.0.0:0"),
        ("unix:/run/e.sock", Address(path="/run/e.sock"), "unix:/run/e.sock"),
    ],
)
def test_an_address_is_read_and_shown(written: str, address: Address, shown: str) -> None:
    """Contract, sections 4 and 11."""
    assert parse(written) == address
    assert str(address) == shown


@pytest.mark.parametrize(
    "written",
    [
        "",
        "8420",
        ":8420",
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:65536",
        "127.0.0.1:-1",
        "127.0.0.1:١",
        "::1:8420",
        "[::1]",
        "board.lan:8420",
        "http://127.0.0.1:8420",
        "unix:run/e.sock",
        "unix:",
    ],
)
def test_what_is_no_address_is_told_how_one_is_written(written: str) -> None:
    """Contract, section 11: a wrong value stops the start with its key path."""
    with pytest.raises(ConfigError, match=r"^http\.listen: .*unix:/"):
        parse(written)


@given(st.text(max_size=40))
def test_any_text_is_an_address_or_a_configuration_error(written: str) -> None:
    """Nothing else comes out of the parser."""
    try:
        address = parse(written)
    except ConfigError:
        return
    assert parse(str(address)) == address


@pytest.mark.parametrize(
    ("written", "private"),
    [
        ("127.9.9.9:1", True),
        ("[::1]:1", True),
        ("unix:/x", True),
        ("192.0.2.1:1", False),
        ("[::]:1", False),
    ],
)
def test_loopback_and_paths_are_private(written: str, private: bool) -> None:
    """RFC 1122, section 3.2.1.3 and RFC 4291, section 2.5.3."""
    assert parse(written).is_private is private


# Rates ------------------------------------------------------------------------------------


def test_a_burst_is_taken_at_once_and_the_rate_after_it() -> None:
    """A token bucket: `burst` deep, `rate` a second."""
    clock = FakeClock()
    rates = Rates(2.0, 3, clock.monotonic)
    for _ in range(3):
        rates.take("a")
    with pytest.raises(RateLimitedError, match=r"http\.rate") as refused:
        rates.take("a")
    assert refused.value.retry_after_s == pytest.approx(0.5)
    rates.take("b")
    clock.advance(0.5)
    rates.take("a")
    with pytest.raises(RateLimitedError):
        rates.take("a")


def test_a_bucket_never_holds_more_than_its_burst() -> None:
    """Silence is not saved up."""
    clock = FakeClock()
    rates = Rates(100.0, 2, clock.monotonic)
    rates.take("a")
    clock.advance(3_600)
    rates.take("a")
    rates.take("a")
    with pytest.raises(RateLimitedError):
        rates.take("a")


def test_so_many_callers_are_remembered_and_no_more() -> None:
    """Architecture, laws: every buffer is bounded; the longest silent is forgotten."""
    rates = Rates(0.001, 1, FakeClock().monotonic)
    for number in range(KEYS):
        rates.take(str(number))
    with pytest.raises(RateLimitedError):
        rates.take("0")
    rates.take("new")
    rates.take("1")
    with pytest.raises(RateLimitedError):
        rates.take("0")


# Kept results -----------------------------------------------------------------------------


class Table:
    """A table of calls, its clock and its events."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.events = Events(self.clock)
        self.calls = Calls(self.clock, self.events)
        self._count = 0

    def add(self, caller: Caller = ADA) -> Call:
        self._count += 1
        call = Call(f"c-{self._count}", caller, None, "hello")
        self.calls.make_room(caller.user)
        self.calls.add(call)
        return call

    def add_done(self, body: str = "x", caller: Caller = ADA) -> Call:
        call = self.add(caller)
        end(call, body)
        return call

    def has(self, call: Call) -> bool:
        try:
            self.calls.get(ADA, call.id)
        except NotFoundError:
            return False
        return True


def end(call: Call, body: str) -> None:
    """What the dispatcher does at the end of a call."""
    call.result = complete(text(body))
    call.finish()


def test_a_result_is_there_once_the_call_has_ended() -> None:
    """Contract, section 6."""
    table = Table()
    call = table.add()
    assert table.calls.get(ADA, call.id) == b""
    end(call, "done")
    assert msgspec.json.decode(table.calls.get(OWNER, call.id))["for_llm"] == "done"
    with pytest.raises(NotFoundError):
        table.calls.get(BOB, call.id)
    with pytest.raises(NotFoundError):
        table.calls.end(BOB, call.id)


def test_a_cancelled_call_has_a_result_that_says_so() -> None:
    """Contract, section 7: exactly one end."""
    table = Table()
    call = table.add()
    call.cancelled = True
    call.finish()
    result = msgspec.json.decode(table.calls.get(ADA, call.id))
    assert (result["is_error"], result["call_id"]) == (True, call.id)


def test_a_result_is_an_event_too_and_a_large_one_is_only_named_there() -> None:
    """Contract, section 6; the ring of events stays small."""
    table = Table()
    small, large = table.add_done("x"), table.add_done("y" * EVENT_MAX)
    first, second = table.events.since(0)
    assert first.kind == second.kind == "call.result"
    assert first.user == ADA.user
    assert first.data["location"] == location(small.id)
    assert first.data["call_id"] == small.id
    assert first.data["result"] == msgspec.json.decode(table.calls.get(ADA, small.id))
    assert second.data["result"] is None
    assert second.data["call_id"] == large.id


def test_results_are_kept_for_an_hour() -> None:
    """The running call's hour begins with its end."""
    table = Table()
    running, ended = table.add(), table.add_done()
    table.clock.advance(AGE_MAX_S)
    assert table.has(ended)
    table.clock.advance(1)
    assert not table.has(ended)
    end(running, "late")
    table.clock.advance(AGE_MAX_S)
    assert table.has(running)


def test_the_result_that_ended_first_makes_room() -> None:
    """Architecture, laws: bounded, and a running call is never dropped."""
    table = Table()
    first = table.add()
    others = [table.add_done() for _ in range(KEPT // 2 - 1)]
    end(first, "last to end")
    table.add_done()
    assert not table.has(others[0])
    assert table.has(first)
    assert table.has(others[1])


def test_when_all_kept_calls_run_another_is_refused() -> None:
    """Contract, section 6: busy."""
    table = Table()
    for _ in range(KEPT // 2):
        table.add()
        table.add(BOB)
    with pytest.raises(BusyError, match=str(KEPT)):
        table.calls.make_room(OWNER.user)


def test_one_user_keeps_half_of_the_calls_and_leaves_the_others_theirs() -> None:
    """Fair: what one user has running or kept is never at another's cost."""
    table = Table()
    mine = table.add_done()
    for _ in range(KEPT // 2):
        table.add(BOB)
    with pytest.raises(BusyError, match=f"{KEPT // 2} .*{BOB.user}"):
        table.calls.make_room(BOB.user)
    assert table.has(mine)
    table.calls.make_room(ADA.user)


def test_one_users_results_take_half_of_the_bytes() -> None:
    """Large results of one user are at nobody else's cost."""
    table = Table()
    mine = table.add_done("x" * (BYTES_MAX // 8))
    theirs = [table.add_done("y" * (BYTES_MAX // 8), BOB) for _ in range(3)]
    assert table.has(mine)
    with pytest.raises(NotFoundError):
        table.calls.get(BOB, theirs[0].id)
    assert table.calls.get(BOB, theirs[2].id)


def test_when_two_users_fill_the_table_the_oldest_result_makes_room_for_a_third() -> None:
    """Contract, section 6: results are kept as long as there is room."""
    table = Table()
    first = table.add_done()
    for _ in range(KEPT // 2 - 1):
        table.add()
    for _ in range(KEPT // 2):
        table.add(BOB)
    table.calls.make_room(OWNER.user)
    assert not table.has(first)


# Places -----------------------------------------------------------------------------------


def test_one_user_takes_three_quarters_of_the_places_at_most() -> None:
    """Nobody locks the others out."""
    places = Places(256, 192)
    assert sum(places.take(1000, owner=False) for _ in range(300)) == 192
    assert places.take(1001, owner=False)


def test_owners_always_have_places_left() -> None:
    """Whoever must put things right gets in."""
    places = Places(256, 192)
    taken = sum(places.take(uid, owner=False) for uid in range(300))
    assert taken == 256 - OWNERS_PLACES
    assert sum(places.take(0, owner=True) for _ in range(300)) == OWNERS_PLACES


def test_owners_count_too_and_a_place_given_back_is_free() -> None:
    places = Places(4, 3)
    assert all(places.take(0, owner=True) for _ in range(4))
    assert not places.take(0, owner=True)
    assert not places.take(1000, owner=False)
    for _ in range(4):
        places.leave(0, owner=True)
    assert [places.take(1000, owner=False) for _ in range(4)] == [True, True, True, False]
    places.leave(1000, owner=False)
    assert places.take(1000, owner=False)
    for _ in range(3):
        places.leave(1000, owner=False)
    assert places.take(1001, owner=False)


def test_results_are_bounded_in_bytes_but_the_newest_stays() -> None:
    """A board has little memory."""
    table = Table()
    running = table.add()
    small = table.add_done("x")
    large = table.add_done("y" * (BYTES_MAX // 2))
    assert not table.has(small)
    assert table.has(large)
    assert table.has(running)
    newest = table.add_done("z" * BYTES_MAX)
    assert not table.has(large)
    assert table.has(newest)


# The API's description --------------------------------------------------------------------


# Routes -----------------------------------------------------------------------------------


async def nothing(_request: Any) -> None:
    """Do nothing."""


def matched(path: str) -> tuple[dict[str, str], dict[str, str]]:
    paths = ("GET /a/{name}", "PUT /a/{name}/b", "GET /a/fixed", "PUT /a/fixed", "GET /a")
    routes = tuple(Route(*one.split(" "), nothing, ()) for one in paths)
    found, params = Paths(routes).match(path)
    return {method: route.path for method, route in found.items()}, params


def test_a_path_that_is_written_out_goes_before_a_name() -> None:
    """P: `/api/tools/web-search-config` beside `/api/tools/{name}`, wherever the table has it."""
    assert matched("/a/fixed") == ({"GET": "/a/fixed", "PUT": "/a/fixed"}, {})
    assert matched("/a/other") == ({"GET": "/a/{name}"}, {"name": "other"})


def test_a_part_of_a_path_is_decoded_once_and_never_empty() -> None:
    """RFC 3986, section 2.4: after the split at slashes."""
    assert matched("/a/x%2Fy%2520/b") == ({"PUT": "/a/{name}/b"}, {"name": "x/y%20"})
    for path in ("/a/", "/a//b", "//a", "/a/x/c", "/a/x/b/c", ""):
        assert matched(path) == ({}, {})


def _references(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return own + [r for value in node.values() for r in _references(value)]
    return [r for item in node for r in _references(item)] if isinstance(node, list) else []


def test_the_description_is_complete_and_every_reference_resolves() -> None:
    """OpenAPI 3.1.1, sections 4.8.9, 4.8.10 and 4.8.17."""
    made = msgspec.json.decode(msgspec.json.encode(document(ROUTES, "1.2.3")))
    assert made["info"]["version"] == "1.2.3"
    for reference in _references(made):
        node = made
        for part in reference.removeprefix("#/").split("/"):
            node = node[part]
    seen: set[str] = set()
    for path, operations in made["paths"].items():
        for operation in operations.values():
            assert operation["summary"].endswith(".")
            assert operation["operationId"] not in seen
            seen.add(operation["operationId"])
            assert any(int(status) < 300 for status in operation["responses"])
            named = {p["name"] for p in operation.get("parameters", []) if p.get("in") == "path"}
            assert named == {part[1:-1] for part in path.split("/") if part.startswith("{")}
    assert made["paths"]["/healthz"]["get"]["security"] == []
    assert [r for r in ROUTES if r.is_open] == [ROUTES[0]]
    result = made["components"]["schemas"]["Result"]
    assert set(result["properties"]) >= {
        "content",
        "is_error",
        "for_llm",
        "for_user",
        "silent",
        "media",
        "async",
        "response_handled",
        "structured",
        "call_id",
        "duration_ms",
        "truncated",
    }
