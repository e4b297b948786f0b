"""Permission requests, grants and denials (contract, section 6; facts of PicoClaw, 7)."""

import json
import os
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from edged.errors import (
    BusyError,
    DeniedError,
    InvalidArgumentsError,
    NotFoundError,
    StoreError,
)
from edged.events import Events
from edged.identity import Caller
from edged.policy import PENDING_MAX, PENDING_S, SESSION_S, Policy
from edged.store import Store
from edged.testing.clock import FakeClock

ADA = Caller("ada@example.org", "agent", "s1", "unix", "uid 1000")
BOB = Caller("bob@example.org", "agent", "s2", "unix", "uid 1001")
OWNER = Caller("local", "owner", "", "unix", "uid 0")


@dataclass
class Desk:
    folder: Any
    clock: FakeClock = field(default_factory=FakeClock)

    def __post_init__(self):
        self.events = Events(self.clock)
        self.seen = []
        self.events.subscribe(lambda event: self.seen.append((event.kind, event.user, event.data)))
        self.policy = self.restarted()

    def restarted(self):
        private = (str(self.folder / "data"),)
        self.store = Store(str(self.folder / "data" / "state"))
        return Policy(self.store, self.clock, self.events, private=private)

    def path(self, name):
        found = self.folder / name
        found.mkdir(parents=True, exist_ok=True)
        return str(found)

    def granted(self, path, duration="session", caller=ADA, **options):
        request = self.policy.request(caller, caller.session, path, **options)
        return self.policy.answer(request.id, duration, OWNER)

    def find(self, path, caller=ADA, *, write=False):
        return self.policy.find(caller, caller.session, path, write=write)


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path)


def test_request_waits_and_is_an_event(desk):
    path = desk.path("srv")
    request = desk.policy.request(ADA, "s1", path, "make", "to build", write=True)
    assert desk.policy.pending() == [request]
    [(kind, user, data)] = desk.seen
    assert (kind, user) == ("permission.request", ADA.user)
    facts = {"request_id": request.id, "path": path, "command": "make", "reason": "to build"}
    assert facts.items() <= data.items()
    assert desk.find(path) is None


def test_another_thing_at_the_path_is_another_question(desk):
    """What lies there by now was never looked over: asking again does not bind to it."""
    path = desk.path("srv/notes")
    first = desk.policy.request(ADA, "s1", path)
    assert desk.policy.request(ADA, "s1", path).id == first.id
    os.rename(path, f"{path}.old")
    desk.path("srv/notes")
    second = desk.policy.request(ADA, "s1", path)
    assert second.id != first.id
    assert desk.policy.pending() == [second]
    assert [kind for kind, _, _ in desk.seen] == ["permission.request"] * 2
    with pytest.raises(NotFoundError):
        desk.policy.answer(first.id, "session", OWNER)
    assert desk.find(path) is None


def test_a_path_that_leads_elsewhere_is_not_plain(desk):
    """Who put the link there is not who answers."""
    real = desk.path("rootonly")
    link = os.path.join(os.path.dirname(real), "report")
    os.symlink(real, link)
    assert desk.policy.place(real + "/", plain=True) == desk.policy.place(link)
    with pytest.raises(InvalidArgumentsError, match=f"{link} leads to {real}: name that"):
        desk.policy.place(link, plain=True)


def test_what_is_decided_on_is_what_was_looked_at(desk):
    """A link that comes and goes: 9 of 300 grants were of its target."""
    real, path = desk.path("rootonly"), desk.path("report")
    place = desk.policy.place(path, plain=True)
    os.rename(path, f"{path}.kept")
    os.symlink(real, path)
    assert desk.policy.waiting_for(ADA.user, place) == []
    with pytest.raises(InvalidArgumentsError, match="not what it was"):
        desk.policy.decide(ADA.user, place, "session", OWNER)
    assert desk.policy.grants() == []
    assert desk.policy.pending() == []


def test_grant_covers_components_and_not_letters(desk):
    """Facts of PicoClaw, 7: there `/desk` covered `/desktop`."""
    grant = desk.granted(desk.path("desk"))
    for name in ("desk", "desk/a", "desk/a/b"):
        assert desk.find(str(desk.folder / name)) == grant
    for name in ("desktop", "des", "."):
        assert desk.find(os.path.normpath(desk.folder / name)) is None


def test_grant_is_its_callers_alone(desk):
    path = desk.path("srv")
    desk.granted(path)
    assert desk.find(path, BOB) is None
    other_session = msgspec.structs.replace(ADA, session="s9")
    assert desk.find(path, other_session) is None
    other_uid = msgspec.structs.replace(ADA, peer="uid 7")
    assert desk.find(path, other_uid) is None


def test_grant_to_read_is_none_to_write(desk):
    path = desk.path("srv")
    desk.granted(path)
    assert desk.find(path, write=True) is None
    grant = desk.granted(path, write=True)
    assert desk.find(path, write=True) == grant


def test_once_is_used_up_by_one_use(desk):
    path = desk.path("srv")
    grant = desk.granted(path, "once")
    assert desk.find(path) == grant
    desk.policy.use(grant)
    assert desk.find(path) is None
    with pytest.raises(DeniedError, match="used up"):
        desk.policy.use(grant)


def test_once_that_nothing_came_of_is_there_again(desk):
    grant = desk.granted(desk.path("srv"), "once")
    desk.policy.use(grant)
    desk.policy.give_back(grant)
    assert desk.restarted().granted(ADA, "s1") == (grant,)


def test_session_is_preferred_to_once(desk):
    path = desk.path("srv")
    once, session = desk.granted(path, "once"), desk.granted(path, "session")
    assert desk.find(path) == session
    desk.policy.use(session)
    assert desk.policy.granted(ADA, "s1") == (once, session)


def test_session_grant_ends_with_the_session(desk):
    path = desk.path("srv")
    desk.granted(path)
    desk.policy.end(BOB.user, "s1")
    assert desk.find(path) is not None
    desk.policy.end(ADA.user, "s1")
    assert desk.find(path) is None


def test_session_without_a_connection_ends_unused(desk):
    path = desk.path("srv")
    caller = msgspec.structs.replace(ADA, session="")
    grant = desk.granted(path, caller=caller)
    desk.clock.advance(SESSION_S - 1)
    desk.policy.use(grant)
    desk.clock.advance(SESSION_S - 1)
    assert desk.find(path, caller) == grant
    desk.clock.advance(2)
    assert desk.find(path, caller) is None


def test_denial_is_remembered_and_holds_below(desk):
    """Facts of PicoClaw, 7: nothing ever stored a denial there."""
    path = desk.path("srv/a")
    desk.granted(str(desk.folder / "srv"), "deny")
    desk.policy = desk.restarted()
    for act in (
        lambda: desk.policy.request(ADA, "s1", path),
        lambda: desk.policy.request(ADA, "s7", path, write=True),
        lambda: desk.find(path),
    ):
        with pytest.raises(DeniedError, match="refused"):
            act()
    assert desk.policy.request(BOB, "s2", path)


def test_denial_to_write_leaves_reading_to_be_asked(desk):
    path = desk.path("srv")
    desk.granted(path, "deny", write=True)
    grant = desk.granted(path)
    assert desk.find(path) == grant
    with pytest.raises(DeniedError):
        desk.find(path, write=True)


def test_denial_is_lifted_by_the_same_id(desk):
    path = desk.path("srv")
    desk.granted(path, "deny")
    [denied] = desk.policy.denied()
    grant = desk.policy.answer(denied.id, "session", OWNER)
    assert desk.find(path) == grant
    assert desk.policy.denied() == []


def test_denial_is_stronger_than_a_grant_around_it(desk):
    inner = desk.path("srv/secret")
    desk.granted(inner, "deny")
    desk.granted(str(desk.folder / "srv"))
    assert desk.find(str(desk.folder / "srv"))
    with pytest.raises(DeniedError):
        desk.find(inner)


def test_later_grant_inside_of_a_denial_holds(desk):
    inner = desk.path("srv/open")
    desk.granted(str(desk.folder / "srv"), "deny")
    assert desk.policy.decide(ADA.user, desk.policy.place(inner), "session", OWNER)
    assert desk.find(inner)
    with pytest.raises(DeniedError):
        desk.find(str(desk.folder / "srv"))


@pytest.mark.parametrize(
    "by",
    [
        ADA,
        msgspec.structs.replace(OWNER, depth=1),
        msgspec.structs.replace(ADA, role="owner"),
    ],
    ids=["agent", "tool", "the session that asked"],
)
def test_who_asked_never_answers(desk, by):
    """Contract, section 4: agents cannot grant permissions."""
    request = desk.policy.request(ADA, "s1", desk.path("srv"))
    for duration in ("once", "session", "deny"):
        with pytest.raises(DeniedError):
            desk.policy.answer(request.id, duration, by)
    assert desk.policy.pending() == [request]


def test_agent_can_not_grant_a_path_or_lift_a_denial(desk):
    path = desk.path("srv")
    desk.granted(path, "deny")
    [denied] = desk.policy.denied()
    for act in (
        lambda: desk.policy.decide(ADA.user, desk.policy.place(path), "session", ADA),
        lambda: desk.policy.forget(denied.id, ADA),
    ):
        with pytest.raises(DeniedError, match="only an owner"):
            act()


def test_same_question_is_the_same_request(desk):
    path = desk.path("srv")
    first = desk.policy.request(ADA, "s1", path)
    again = desk.policy.request(ADA, "s2", path)
    assert (again.id, again.session) == (first.id, "s2")
    assert len(desk.policy.pending()) == len(desk.seen) == 1


def test_requests_are_bounded_and_expire(desk):
    for index in range(PENDING_MAX):
        desk.policy.request(ADA, "s1", desk.path(f"srv{index}"))
    with pytest.raises(BusyError, match="edged grant"):
        desk.policy.request(ADA, "s1", desk.path("more"))
    desk.policy.request(BOB, "s2", desk.path("more"))
    desk.clock.advance(PENDING_S + 1)
    assert desk.policy.pending() == []
    desk.policy.request(ADA, "s1", desk.path("more"))


def test_links_are_followed_before_the_owner_is_asked(desk):
    """The owner sees where it leads, not a harmless name."""
    real = desk.path("etc")
    os.symlink(real, desk.folder / "harmless")
    request = desk.policy.request(ADA, "s1", str(desk.folder / "harmless" / "x"))
    assert request.path == f"{real}/x"


def test_path_that_is_no_text_is_not_asked_for(desk):
    """Names are bytes (path_resolution(7)); what is stored and sent is UTF-8."""
    os.mkdir(os.fsencode(desk.folder) + b"/\xff")
    os.symlink(b"\xff", desk.folder / "way")
    with pytest.raises(InvalidArgumentsError, match="cannot be followed"):
        desk.policy.request(ADA, "s1", str(desk.folder / "way"))
    assert desk.policy.pending() == []


def test_what_was_swapped_before_the_answer_is_not_granted(desk):
    """Facts of PicoClaw, 16: #3081."""
    path = desk.path("srv")
    request = desk.policy.request(ADA, "s1", path)
    os.rename(path, desk.folder / "moved")
    os.mkdir(path)
    with pytest.raises(InvalidArgumentsError, match="not what it was"):
        desk.policy.answer(request.id, "session", OWNER)
    assert desk.policy.pending() == [request]
    assert desk.find(path) is None
    desk.policy.answer(request.id, "deny", OWNER)


@pytest.mark.parametrize("name", ["data", "data/state", "data/x/workspace", ".", ".."])
def test_daemons_own_files_are_never_granted(desk, name):
    """A grant around them would show them too."""
    desk.path("data/state")
    path = os.path.normpath(desk.folder / name)
    with pytest.raises(DeniedError, match="its own state"):
        desk.policy.request(ADA, "s1", path)
    with pytest.raises(DeniedError, match="its own state"):
        desk.policy.decide(ADA.user, desk.policy.place(path), "session", OWNER)


def test_what_is_not_there_is_bound_to_the_directory_that_is(desk):
    srv = desk.path("srv")
    grant = desk.granted(f"{srv}/new/file", write=True)
    found = os.stat(srv)
    assert (grant.anchor, grant.device, grant.inode) == (srv, found.st_dev, found.st_ino)


def test_pending_denied_and_once_outlive_the_daemon(desk):
    path = desk.path("a")
    pending = desk.policy.request(ADA, "s1", path)
    once = desk.granted(desk.path("b"), "once")
    desk.granted(desk.path("c"), "session")
    desk.granted(desk.path("d"), "deny")
    again = desk.restarted()
    assert again.pending() == [pending]
    assert again.granted(ADA, "s1") == (once,)
    assert [one.path for one in again.denied()] == [str(desk.folder / "d")]
    assert again.answer(pending.id, "once", OWNER).order > again.denied()[0].order


def test_answer_that_is_not_stored_is_none(desk):
    """A full disk: the owner is told, and nothing changed."""
    path = desk.path("srv")
    request = desk.policy.request(ADA, "s1", path)
    state = desk.folder / "data" / "state"
    state.rename(desk.folder / "data" / "away")
    state.write_text("a file is in the way")
    for act in (
        lambda: desk.policy.answer(request.id, "once", OWNER),
        lambda: desk.policy.request(ADA, "s1", desk.path("other")),
        lambda: desk.policy.forget(request.id, OWNER),
    ):
        with pytest.raises(StoreError):
            act()
    assert desk.policy.pending() == [request]
    assert desk.find(path) is None


def test_broken_file_is_set_aside_and_told(desk):
    desk.granted(desk.path("a"), "deny")
    file = desk.folder / "data" / "state" / "permissions.json"
    file.write_text("{")
    fresh = desk.restarted()
    fresh.denied()
    assert "permissions.json was broken" in desk.store.broken[0]


def test_forgotten_permission_is_gone(desk):
    path = desk.path("srv")
    grant = desk.granted(path)
    desk.policy.forget(grant.id, OWNER)
    assert desk.find(path) is None
    with pytest.raises(NotFoundError):
        desk.policy.forget(grant.id, OWNER)
    with pytest.raises(NotFoundError):
        desk.policy.answer("nothing", "once", OWNER)


def test_owners_own_word_holds_for_every_session_of_a_user(desk):
    path = desk.path("srv")
    desk.policy.decide(ADA.user, desk.policy.place(path), "session", OWNER)
    assert desk.find(path)
    assert desk.find(path, msgspec.structs.replace(ADA, session="s9", peer="uid 7"))
    assert desk.find(path, BOB) is None
    desk.policy.decide(ADA.user, desk.policy.place(path), "deny", OWNER)
    with pytest.raises(DeniedError):
        desk.find(path)


def test_events_tell_of_answers(desk):
    desk.granted(desk.path("srv"), "once")
    kind, user, data = desk.seen[-1]
    assert (kind, user, data["answer"]) == ("permission.answered", ADA.user, "once")
    json.dumps(data)


def test_denial_takes_back_what_was_granted_there_before(desk):
    """What `edged grant` lists as allowed is allowed."""
    path = desk.path("srv")
    for place, duration in ((path, "session"), (desk.path("srv/in"), "once")):
        desk.policy.decide(ADA.user, desk.policy.place(place), duration, OWNER, write=True)
    desk.policy.decide(BOB.user, desk.policy.place(path), "session", OWNER)
    desk.policy.decide(ADA.user, desk.policy.place(path), "deny", OWNER, write=True)
    rights = [(one.user, one.write) for one in desk.policy.grants()]
    assert rights == [(ADA.user, False), (ADA.user, False), (BOB.user, False)]
    assert desk.find(path), "reading was not refused"
    desk.policy.decide(ADA.user, desk.policy.place(path), "deny", OWNER)
    assert [one.user for one in desk.policy.grants()] == [BOB.user]
    assert [one.user for one in desk.restarted().grants()] == []


def test_grant_is_answered_anew_by_its_id(desk):
    """README: the same id answers anew."""
    grant = desk.granted(desk.path("srv"), "session")
    again = desk.policy.answer(grant.id, "once", OWNER)
    assert desk.policy.grants() == [again]
    assert desk.policy.answer(grant.id, "deny", OWNER) is None
    assert desk.policy.grants() == []
    with pytest.raises(DeniedError):
        desk.find(grant.path)


def test_request_that_was_answered_and_is_over_is_told_so(desk):
    """Another than one that never was."""
    grant = desk.granted(desk.path("srv"), "once")
    desk.policy.use(grant)
    with pytest.raises(NotFoundError, match=rf"{grant.id} was answered already \(once\)"):
        desk.policy.answer(grant.id, "once", OWNER)
    with pytest.raises(NotFoundError, match="lists those that wait"):
        desk.policy.answer("nope", "once", OWNER)


@pytest.mark.parametrize(
    ("name", "write"), [("srv/new", False), ("srv/new/file", True), ("srv/file/new", True)]
)
def test_owner_grants_nothing_that_is_not_there(desk, name, write):
    """Most probably it is misspelt; a denial may be of what comes later."""
    (desk.folder / desk.path("srv") / "file").touch()
    path = str(desk.folder / name)
    with pytest.raises(InvalidArgumentsError, match=f"{path} is not there: make it first"):
        desk.policy.decide(ADA.user, desk.policy.place(path), "once", OWNER, write=write)
    assert desk.policy.pending() == []
    desk.policy.decide(ADA.user, desk.policy.place(path), "deny", OWNER, write=write)


def test_owner_grants_a_file_that_is_to_be_written(desk):
    """The directory that it goes into is there."""
    path = f"{desk.path('srv')}/new"
    assert (
        desk.policy.decide(ADA.user, desk.policy.place(path), "once", OWNER, write=True).path
        == path
    )


def test_what_a_token_was_given_is_gone_also_where_the_disk_is_full(desk):
    """It is told, and the token is none any more in any case."""
    path = desk.path("srv")
    desk.granted(path)
    assert desk.find(path) is not None
    state = desk.folder / "data" / "state"
    state.rename(desk.folder / "data" / "away")
    state.write_text("a file is in the way")
    with pytest.raises(StoreError):
        desk.policy.end_of(ADA.who)
    assert desk.find(path) is None
    assert desk.policy.grants() == []
