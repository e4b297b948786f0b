"""The ring of events and who hears them."""

import pytest

from edged.events import KEPT, TEXT_MAX, Event, Events, visible
from edged.testing.clock import FakeClock


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def events(clock):
    return Events(clock)


def test_a_subscriber_hears_each_event_until_it_stops(events, clock):
    """Contract, section 6: GET /api/events."""
    heard = []
    stop = events.subscribe(heard.append)
    first = events.last_id
    events.publish("call.start", "ada@example.org", {"tool": "hello"})
    clock.advance(1.5)
    events.publish("call.end", "ada@example.org", {"tool": "hello"})
    stop()
    stop()
    events.publish("tools.changed", "", {})
    assert [(e.id - first, e.kind, e.time) for e in heard] == [
        (1, "call.start", "2023-11-14T22:13:20.000Z"),
        (2, "call.end", "2023-11-14T22:13:21.500Z"),
    ]


def test_a_subscriber_that_fails_harms_nobody_and_is_logged_once(events, capsys):
    """The publisher ends a call; whoever watches it must not keep it from its end."""
    heard = []

    def fails(_event):
        raise RuntimeError("broken pipe")

    stop = events.subscribe(fails)
    events.subscribe(heard.append)
    for _ in range(3):
        events.publish("call.end", "", {})
    stop()
    assert len(heard) == 3
    assert capsys.readouterr().err.count("broken pipe") == 1


def test_what_was_missed_can_be_asked_for(events):
    """Contract, section 6: Last-Event-ID resumes."""
    events.publish("a", "", {})
    seen = events.last_id
    events.publish("b", "", {})
    events.publish("c", "", {})
    assert [e.kind for e in events.since(seen)] == ["b", "c"]
    assert events.since(events.last_id) == []


def test_an_asker_that_has_nothing_gets_what_is_kept_without_a_gap(events):
    events.publish("a", "", {})
    assert [e.kind for e in events.since(0)] == ["a"]


def test_a_gap_is_an_event_that_says_what_is_gone(events):
    """Contract, section 6: the last 1,000; a gap is itself an event."""
    events.publish("first", "", {})
    seen = events.last_id
    for number in range(KEPT + 1):
        events.publish("more", "", {"number": number})
    gap, *rest = events.since(seen)
    assert KEPT == 1000
    assert (gap.kind, gap.data) == ("gap", {"after": seen, "next": seen + 2})
    assert [e.data["number"] for e in rest] == list(range(1, KEPT + 1))
    assert gap.id == rest[0].id - 1


def test_nothing_is_missing_when_only_the_next_event_is_the_oldest_kept(events):
    events.publish("first", "", {})
    seen = events.last_id
    for _ in range(KEPT):
        events.publish("more", "", {})
    assert [e.kind for e in events.since(seen)] == ["more"] * KEPT


@pytest.mark.parametrize("away", [60.0, -60.0])
def test_an_id_of_an_earlier_run_is_a_gap_and_all_that_is_kept(clock, away):
    """A daemon that was started anew, also on a board whose clock went back (no RTC)."""
    earlier = Events(clock)
    for _ in range(5):
        earlier.publish("old", "", {})
    clock.jump(away)
    events = Events(clock)
    for _ in range(10):
        events.publish("new", "", {})
    assert [e.kind for e in events.since(earlier.last_id)] == ["gap"] + ["new"] * 10


def test_an_id_of_an_earlier_run_is_a_gap_also_before_the_first_event(clock):
    earlier = Events(clock)
    clock.advance(1)
    assert [e.kind for e in Events(clock).since(earlier.last_id)] == ["gap"]


def test_after_a_gap_alone_the_asker_misses_nothing(events):
    """A client that lost its connection right after the gap comes back with the gap's id."""
    events.publish("a", "", {})
    gap = events.since(1)[0]
    assert [e.kind for e in events.since(gap.id)] == ["a"]


def test_ids_fit_a_double():
    """Browsers keep Last-Event-ID as text, dashboards as numbers: below 2**53 until 2255."""
    assert Events(FakeClock(now=9_000_000_000.0)).last_id < 2**53


@pytest.mark.parametrize(
    ("user", "owner", "sees"),
    [
        ("ada@example.org", False, True),
        ("bob@example.org", False, False),
        ("bob@example.org", True, True),
    ],
)
def test_a_caller_sees_its_own_events_and_an_owner_all(user, owner, sees):
    """Contract, section 4: roles."""
    event = Event(1, "call.end", "", "ada@example.org", {})
    assert visible(event, user, owner=owner) is sees
    assert visible(Event(1, "tools.changed", "", "", {}), user, owner=owner)


def test_long_messages_let_the_oldest_events_go(events):
    """320 of 64 Ki characters kept 127 MB: the ring was bounded by number alone."""
    size = TEXT_MAX // 8
    for number in range(20):
        events.publish("message", "", {"text": "x" * size, "number": number})
        events.publish("call.end", "", {"number": number})
    first, *kept = events.since(1)
    assert first.kind == "gap"
    texts = [event for event in kept if event.kind == "message"]
    assert [event.data["number"] for event in texts] == list(range(12, 20))
    # What came after the last one that was let go is there.
    assert [e.data["number"] for e in kept if e.kind == "call.end"] == list(range(11, 20))
    for number in range(KEPT):
        events.publish("call.end", "", {"number": number})
    events.publish("message", "", {"text": "x" * TEXT_MAX})
    events.publish("message", "", {"text": "x" * (TEXT_MAX + 1)})
    kept = events.since(events.last_id - KEPT)
    assert [event.kind for event in kept].count("message") == 1
    assert kept[-1].kind == "message"
