"""What callers may reach beside their own: requests to the owner, grants and denials.

Paths are absolute and resolved, and compared component by component. A grant is bound to
the file or directory that was there when it was asked for, not to its name. An agent never
answers, and the session that asked never answers itself. What the owner said is on disk
before it is acknowledged; grants of a session end with it, and with the daemon.
Opens nothing for a caller and knows no sockets. Loop thread only.
"""

from __future__ import annotations

import errno
import os
import weakref
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from edged import log
from edged.clock import Clock, iso
from edged.errors import BusyError, DeniedError, Fault, InvalidArgumentsError, NotFoundError
from edged.events import Events
from edged.identity import Caller
from edged.store import Store

Duration = Literal["once", "session"]
Answer = Literal["once", "session", "deny"]

PENDING_MAX = 32
"""Requests of one user that wait for the owner."""

PENDING_ALL_MAX = 256
"""Those of all users."""

GRANTS_MAX = 256
"""Grants of all users; the oldest goes first."""

DENIED_MAX = 1_000
"""Denials that are remembered; the oldest goes first."""

PENDING_S = 7 * 86_400.0
"""A request that nobody answered for so long is dropped."""

SESSION_S = 8 * 3_600.0
"""A session that no connection ends is over when its grant was not used for so long."""

TEXT_MAX = 500
"""Characters of a command or reason that are kept."""

FILE = "permissions"
"""In the store."""


class Request(msgspec.Struct, frozen=True):
    """What an agent asked for and why; pending, or denied and remembered.

    Attributes:
        id: names it to the owner.
        user: whose agent asked.
        who: which of the user's callers (`Caller.who`).
        session: the one that asked; empty for the identity.
        path: absolute and resolved.
        write: whether to write there too.
        command: what the agent is about to run, or empty.
        reason: in its words, or empty.
        time: RFC 3339, UTC.
        anchor: the deepest part of `path` that was there.
        device: of the anchor.
        inode: of the anchor.
        order: rises with each answer; 0 while pending.
    """

    id: str
    user: str
    who: str
    session: str
    path: str
    write: bool
    command: str
    reason: str
    time: str
    anchor: str
    device: int
    inode: int
    order: int = 0


class Grant(msgspec.Struct, frozen=True):
    """What the owner allowed: a path and all below it; see `Request` for the fields.

    A grant `once` is its caller's in whichever session, and used up by one use.
    """

    id: str
    user: str
    session: str
    path: str
    write: bool
    duration: Duration
    device: int
    inode: int
    anchor: str = ""
    who: str = ""
    order: int = 0
    time: str = ""


class _State(msgspec.Struct):
    pending: list[Request] = []
    denied: list[Request] = []
    once: list[Grant] = []


class Spot(msgspec.Struct, frozen=True):
    """Where a path leads: itself resolved, and the deepest part that is there."""

    path: str
    anchor: str
    device: int
    inode: int


def covers(path: str, other: str) -> bool:
    """Whether `other` is `path` or lies below it; both absolute and resolved."""
    return other == path or other.startswith(path if path == "/" else f"{path}/")


def spot(path: str) -> Spot:
    """Follow an absolute path; what is missing at its end stays as it is named.

    Raises:
        OSError: it cannot be followed.
    """
    real = os.path.realpath(path)
    anchor = real
    while True:
        try:
            found = os.lstat(anchor)
        except (FileNotFoundError, NotADirectoryError):
            if anchor == "/":
                raise
            anchor = os.path.dirname(anchor)
        else:
            return Spot(real, anchor, found.st_dev, found.st_ino)


class Policy:
    """The permission requests of one data directory, and what became of them."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        events: Events,
        *,
        private: tuple[str, ...] = (),
    ) -> None:
        """A policy; nothing is read yet.

        Args:
            store: keeps it.
            clock: dates it.
            events: hears of requests and answers.
            private: what nobody is ever granted: the daemon's own files.
        """
        self._store, self._clock, self._events = store, clock, events
        self._private = tuple(os.path.realpath(path) for path in private)
        self.sockets: tuple[str, ...] = ()
        """The daemon's own: who sees one may call by it."""
        self._pending: dict[str, Request] = {}
        self._denied: dict[str, Request] = {}
        self._grants: dict[str, Grant] = {}
        self._pins: dict[tuple[int, int], int] = {}
        """What is granted, held open: its inode is not given to another while it is."""
        weakref.finalize(self, _close, self._pins)
        self._used: dict[str, float] = {}
        self._answered: dict[str, Answer] = {}
        """What was said to requests that are no more, while the daemon runs."""
        self._order = 0
        self._loaded = False

    # Asking -------------------------------------------------------------------------------

    def request(
        self,
        caller: Caller,
        session: str,
        path: str,
        command: str = "",
        reason: str = "",
        *,
        write: bool = False,
    ) -> Request:
        """Ask the owner; the same question again is the same request.

        Args:
            caller: who asks.
            session: its session, empty for the identity.
            path: absolute; links in it are followed.
            command: what it is for.
            reason: why, for the owner.
            write: to write there, not only to read.

        Raises:
            DeniedError: the owner refused it before, or it is the daemon's own.
            BusyError: too many requests wait.
            InvalidArgumentsError: the path cannot be followed.
            StoreError: it is not stored, and not asked.
        """
        self._load()
        place = _followed(path)
        self.check_private(place.path, path)
        denial = self._denial(caller, place.path, write=write)
        if denial is not None:
            raise DeniedError(_refused(path, denial.id))
        known = self._known(caller, place, write=write)
        if known is not None and _spot_of(known) == place:
            return self._again(known, session)
        self._expire()
        mine = sum(one.user == caller.user for one in self._pending.values())
        if mine >= PENDING_MAX or len(self._pending) >= PENDING_ALL_MAX:
            raise BusyError(
                f"{len(self._pending)} permission requests wait for the owner: "
                "let them be answered first (edged grant)"
            )
        request = self._made(caller.user, caller.who, session, place, write=write)
        request = msgspec.structs.replace(
            request, command=command[:TEXT_MAX], reason=reason[:TEXT_MAX]
        )
        undo = self._kept()
        if known is not None:
            # What lies there by now was never looked over: it is another question.
            del self._pending[known.id]
        self._pending[request.id] = request
        self._save(undo)
        act = "write" if write else "read"
        log.info(
            f"an agent of {caller.user} asks to {act} {request.path}: "
            f"edged grant {request.id} once|session|deny"
        )
        self._events.publish("permission.request", caller.user, facts(request))
        return request

    def keep_private(self, path: str) -> None:
        """Grant nobody a place of the daemon's from now on, such as a socket of it.

        Who sees a socket may connect to it, also where it is shown read-only.
        """
        real = os.path.realpath(path)
        self._private, self.sockets = (*self._private, real), (*self.sockets, real)

    def check_private(self, path: str, shown: str) -> None:
        """Refuse what is the daemon's own, whatever anyone allowed.

        Raises:
            DeniedError: it is, or it is around it.
        """
        if any(covers(own, path) or covers(path, own) for own in self._private):
            raise DeniedError(f"{shown}: edged keeps its own state there: no grant reaches it")

    # Answering ----------------------------------------------------------------------------

    def answer(
        self, request_id: str, duration: Answer, by: Caller, *, write: bool | None = None
    ) -> Grant | None:
        """Answer a request, or an answered one anew; returns the grant, None for a denial.

        Args:
            request_id: whose.
            duration: `once`, `session` or `deny`.
            by: an owner, and not the session that asked.
            write: whether the answer is about writing too, where it goes beyond the request.

        Raises:
            DeniedError: not an owner, or the one that asked.
            NotFoundError: no such request.
            InvalidArgumentsError: something else lies at the path by now.
            StoreError: nothing changed.
        """
        self._check_owner(by, "answer permission requests")
        self._load()
        request = self._pending.get(request_id) or self._denied.get(request_id)
        if request is None and request_id in self._grants:
            request = _asked(self._grants[request_id])
        if request is None:
            raise NotFoundError(self._unknown(request_id))
        if by.session and (by.user, by.session) == (request.user, request.session):
            raise DeniedError("the session that asked may not answer: answer by edged grant")
        if write is not None:
            request = msgspec.structs.replace(request, write=write)
        if duration != "deny":
            self._check_same(request)
        undo = self._kept()
        self._order += 1
        self._pending.pop(request_id, None)
        self._grants.pop(request_id, None)
        self._lift(request, deny=duration == "deny")
        grant: Grant | None = None
        if duration == "deny":
            self._denied[request_id] = msgspec.structs.replace(request, order=self._order)
            _trim(self._denied, DENIED_MAX)
            self._narrow(request)
        else:
            grant = self._granted(request, duration)
            self._forget_gone(grant)
            self._grants[grant.id] = grant
            self._used[grant.id] = self._clock.monotonic()
            _trim(self._grants, GRANTS_MAX)
        self._save(undo)
        self._answered[request_id] = duration
        _trim(self._answered, GRANTS_MAX)
        answered = {**facts(request), "answer": duration}
        self._events.publish("permission.answered", request.user, answered)
        return grant

    def decide(
        self, user: str, place: Spot, duration: Answer, by: Caller, *, write: bool = False
    ) -> Grant | None:
        """Grant or refuse a place that nobody asked for; see `answer`.

        A grant `session` is then one of all of the user's sessions.

        Args:
            user: whose agents may, or may not.
            place: of `place`.
            duration: `once`, `session` or `deny`.
            by: an owner.
            write: whether it is about writing there.

        Raises:
            DeniedError: not an owner, or the path is the daemon's own.
            InvalidArgumentsError: it is not there to be granted, or something else by now.
            StoreError: nothing changed.
        """
        self._check_owner(by, "grant permissions")
        self._load()
        path = place.path
        self.check_private(path, path)
        above = os.path.dirname(place.path)
        is_new = write and place.anchor == above and os.path.isdir(above)
        if duration != "deny" and place.anchor != place.path and not is_new:
            reason = f"{path} is not there: make it first"
            raise InvalidArgumentsError([Fault("path", reason)])
        request = self._made(user, "", "", place, write=write)
        self._pending[request.id] = request
        try:
            return self.answer(request.id, duration, by)
        finally:
            self._pending.pop(request.id, None)

    def named(self, request_id: str) -> tuple[str, str]:
        """The user and the path of a request, a denial or a grant; empty where there is none."""
        self._load()
        tables: tuple[dict[str, Any], ...] = (self._pending, self._denied, self._grants)
        found = next((t[request_id] for t in tables if request_id in t), None)
        return (found.user, found.path) if found is not None else ("", "")

    @staticmethod
    def place(path: str, *, plain: bool = False) -> Spot:
        """What is at a path now, to be looked up and decided on as that, whatever comes there.

        Args:
            path: absolute; links in it are followed.
            plain: refuse one that leads elsewhere: who put the link there is not who answers.

        Raises:
            InvalidArgumentsError: with where it leads, or it cannot be followed.
        """
        found = _followed(path)
        if plain and found.path != os.path.normpath(path):
            reason = f"{path} leads to {found.path}: name that, where it is what you mean"
            raise InvalidArgumentsError([Fault("path", reason)])
        return found

    def waiting_for(self, user: str, place: Spot) -> list[Request]:
        """Requests of a user for a place that wait, oldest first."""
        self._load()
        self._expire()
        rows = self._pending.values()
        return [row for row in rows if (row.user, row.path) == (user, place.path)]

    def forget(self, name: str, by: Caller) -> None:
        """Take a grant back, lift a denial or drop a request, by its id.

        Raises:
            DeniedError: not an owner.
            NotFoundError: none of that id.
            StoreError: nothing changed.
        """
        self._check_owner(by, "manage permissions")
        self._load()
        undo = self._kept()
        tables: tuple[dict[str, Any], ...] = (self._pending, self._denied, self._grants)
        if not any(table.pop(name, None) for table in tables):
            raise NotFoundError(f"no permission {name[:64]!r}: edged grant lists them")
        self._save(undo)

    def pending(self) -> list[Request]:
        """Requests that wait, oldest first."""
        self._load()
        self._expire()
        return list(self._pending.values())

    def denied(self) -> list[Request]:
        """What the owner refused, and may allow by the same id after all."""
        self._load()
        return list(self._denied.values())

    def grants(self) -> list[Grant]:
        """What is allowed now, to whomever."""
        self._load()
        self._drop_idle()
        return list(self._grants.values())

    # Using --------------------------------------------------------------------------------

    def granted(self, caller: Caller, session: str) -> tuple[Grant, ...]:
        """What is granted to a caller in a session right now."""
        self._load()
        if not self._grants:
            return ()
        self._drop_idle()
        return tuple(one for one in self._grants.values() if _is_for(one, caller, session))

    def find(self, caller: Caller, session: str, path: str, *, write: bool) -> Grant | None:
        """The grant that a path is reached by; None where there is none.

        A grant `session` comes before one that would be used up.

        Args:
            caller: who.
            session: its session.
            path: absolute and resolved.
            write: whether it is for writing.

        Raises:
            DeniedError: the owner refused this path, or one above it.
        """
        self._load()
        denial = self._denial(caller, path, write=write)
        best: Grant | None = None
        for grant in self.granted(caller, session):
            if not covers(grant.path, path) or (write and not grant.write):
                continue
            if denial is not None and not _lifts(grant, denial):
                continue
            if best is None or (best.duration, grant.duration) == ("once", "session"):
                best = grant
        if best is None and denial is not None:
            raise DeniedError(_refused(path, denial.id))
        return best

    def use(self, grant: Grant) -> None:
        """Use a grant: one `once` is gone by that, on disk too.

        Raises:
            DeniedError: it was used up or taken back meanwhile.
            StoreError: it is not used.
        """
        self._load()
        if grant.id not in self._grants:
            raise DeniedError(f"the permission for {grant.path} was used up: ask for it again")
        self._used[grant.id] = self._clock.monotonic()
        if grant.duration == "once":
            undo = self._kept()
            del self._grants[grant.id]
            self._save(undo)

    def give_back(self, grant: Grant) -> None:
        """Undo `use` where nothing came of it.

        Raises:
            StoreError: it stays used.
        """
        if grant.duration == "once" and grant.id not in self._grants:
            undo = self._kept()
            self._grants[grant.id] = grant
            self._save(undo)

    def rebind(self, grant: Grant, device: int, inode: int) -> None:
        """The caller itself replaced the granted file: the grant is of the new one."""
        held = self._grants.get(grant.id)
        if held is not None:
            self._grants[grant.id] = msgspec.structs.replace(
                held, anchor=held.path, device=device, inode=inode
            )
            self._pin()

    def end(self, user: str, session: str) -> None:
        """A session is over, and its grants with it."""
        if self._grants and session:
            self._drop(
                lambda one: (one.duration, one.user, one.session) == ("session", user, session)
            )

    def end_of(self, who: str) -> None:
        """Nobody is this caller any more: its requests and grants go; denials are its user's.

        Raises:
            StoreError: they are gone, and not stored as that.
        """
        self._load()
        tables: tuple[dict[str, Any], ...] = (self._pending, self._grants)
        gone = [(table, one.id) for table in tables for one in table.values() if one.who == who]
        for table, name in gone:
            del table[name]
        if gone:
            self._save(lambda: None)

    def close(self) -> None:
        """Let go of what is granted; nothing is asked or used after."""
        _close(self._pins)

    # ---------------------------------------------------------------------------------------

    def _denial(self, caller: Caller, path: str, *, write: bool) -> Request | None:
        """The denial that is nearest to a path; one of reading holds for writing too."""
        found: Request | None = None
        for one in self._denied.values():
            holds = one.user == caller.user and (write or not one.write)
            nearer = found is None or len(one.path) > len(found.path)
            if holds and nearer and covers(one.path, path):
                found = one
        return found

    def _lift(self, request: Request, *, deny: bool) -> None:
        """Forget the denials of a place that a later word on it stands in for.

        A denial of reading is one of writing too, a grant of writing one of reading.
        """
        for one in tuple(self._denied.values()):
            is_covered = one.write >= request.write if deny else one.write <= request.write
            if (one.user, one.path) == (request.user, request.path) and is_covered:
                del self._denied[one.id]

    def _narrow(self, denial: Request) -> None:
        """Take from earlier grants what a denial refuses now."""
        for one in tuple(self._grants.values()):
            if one.user != denial.user or not covers(denial.path, one.path):
                continue
            if not denial.write:
                del self._grants[one.id]
            elif one.write:
                self._grants[one.id] = msgspec.structs.replace(one, write=False)

    def _unknown(self, request_id: str) -> str:
        """Why there is no request of an id."""
        answered = self._answered.get(request_id)
        if answered is None:
            return f"no permission request {request_id[:64]!r}: edged grant lists those that wait"
        return (
            f"the permission request {request_id} was answered already ({answered}), and that "
            "was used or is over: it may be asked for again, or edged grant PATH says it anew"
        )

    def _made(self, user: str, who: str, session: str, place: Spot, *, write: bool) -> Request:
        return Request(
            id=os.urandom(5).hex(),
            user=user,
            who=who,
            session=session,
            path=place.path,
            write=write,
            command="",
            reason="",
            time=iso(self._clock.now()),
            anchor=place.anchor,
            device=place.device,
            inode=place.inode,
        )

    def _known(self, caller: Caller, place: Spot, *, write: bool) -> Request | None:
        """The request of a caller for a path that waits already."""
        wanted = caller.user, caller.who, place.path, write
        for one in self._pending.values():
            if (one.user, one.who, one.path, one.write) == wanted:
                return one
        return None

    def _again(self, known: Request, session: str) -> Request:
        """The same question, perhaps by a later session."""
        renewed = msgspec.structs.replace(known, session=session)
        if renewed != known:
            undo = self._kept()
            self._pending[known.id] = renewed
            self._save(undo)
        return renewed

    def _granted(self, request: Request, duration: Duration) -> Grant:
        return Grant(
            id=request.id,
            user=request.user,
            session=request.session,
            path=request.path,
            write=request.write,
            duration=duration,
            device=request.device,
            inode=request.inode,
            anchor=request.anchor,
            who=request.who,
            order=self._order,
            time=iso(self._clock.now()),
        )

    def _check_same(self, request: Request) -> None:
        """Make sure that the owner allows what was asked for, not what was put in its place."""
        now = _followed(request.path)
        was = (request.path, request.anchor, request.device, request.inode)
        if (now.path, now.anchor, now.device, now.inode) != was:
            reason = (
                f"{request.path} is not what it was when it was asked for: look it over, deny "
                "this request, and let it be asked for again"
            )
            raise InvalidArgumentsError([Fault("request_id", reason)])

    @staticmethod
    def _check_owner(by: Caller, act: str) -> None:
        if not by.is_owner or by.depth:
            who = by.peer or by.user
            kind = "a tool's call" if by.is_owner else f"{who} is an agent"
            raise DeniedError(f"only an owner may {act}; {kind}")

    def _expire(self) -> None:
        oldest = iso(self._clock.now() - PENDING_S)
        for request in tuple(self._pending.values()):
            if request.time < oldest:
                del self._pending[request.id]

    def _drop_idle(self) -> None:
        oldest = self._clock.monotonic() - SESSION_S
        self._drop(lambda one: one.duration == "session" and self._used.get(one.id, 0.0) < oldest)
        self._used = {name: at for name, at in self._used.items() if name in self._grants}

    def _forget_gone(self, newer: Grant) -> None:
        """Let a new grant stand in for older ones of what was there before."""
        same = [
            one
            for one in self._grants.values()
            if (one.user, one.path) == (newer.user, newer.path)
        ]
        for grant in same:
            if not is_there(grant):
                del self._grants[grant.id]

    def _drop(self, is_over: Callable[[Grant], bool]) -> None:
        """Forget grants that no store has."""
        gone = [one.id for one in self._grants.values() if is_over(one)]
        for name in gone:
            del self._grants[name]
        if gone:
            self._pin()

    def _pin(self) -> None:
        """Hold open what is granted now, and nothing else.

        A descriptor without rights (O_PATH): it keeps the inode, and neither reads nor waits.
        """
        wanted = {(one.device, one.inode): one.anchor or one.path for one in self._grants.values()}
        for key in self._pins.keys() - wanted.keys():
            os.close(self._pins.pop(key))
        for key in wanted.keys() - self._pins.keys():
            try:
                fd = os.open(wanted[key], os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
            except OSError:
                continue  # it is gone: whoever uses the grant is told
            found = os.fstat(fd)
            if (found.st_dev, found.st_ino) == key:
                self._pins[key] = fd
            else:
                os.close(fd)

    def _load(self) -> None:
        if self._loaded:
            return
        state = self._store.load(FILE, _State, _State())
        self._pending = {one.id: one for one in state.pending}
        self._denied = {one.id: one for one in state.denied}
        self._grants = {one.id: one for one in state.once}
        orders = [one.order for one in state.denied] + [one.order for one in state.once]
        self._order = max(orders, default=0)
        self._loaded = True
        self._pin()

    def _kept(self) -> Callable[[], None]:
        """What things are now; returns how to bring them back."""
        before = dict(self._pending), dict(self._denied), dict(self._grants), self._order

        def undo() -> None:
            self._pending, self._denied, self._grants, self._order = before

        return undo

    def _save(self, undo: Callable[[], None]) -> None:
        """Store what outlives the daemon, and hold what is granted; or all is as before."""
        once = [one for one in self._grants.values() if one.duration == "once"]
        state = _State([*self._pending.values()], [*self._denied.values()], once)
        try:
            self._store.save(FILE, state)
        except BaseException:
            undo()
            raise
        self._pin()


def _close(pins: dict[tuple[int, int], int]) -> None:
    while pins:
        os.close(pins.popitem()[1])


def facts(request: Request) -> dict[str, object]:
    """A request as events and listings show it."""
    return {
        "request_id": request.id,
        "user": request.user,
        "path": request.path,
        "write": request.write,
        "command": request.command,
        "reason": request.reason,
        "time": request.time,
        "asked_by": request.who,
    }


def _asked(grant: Grant) -> Request:
    """The request that a grant answers."""
    return Request(
        id=grant.id,
        user=grant.user,
        who=grant.who,
        session=grant.session,
        path=grant.path,
        write=grant.write,
        command="",
        reason="",
        time=grant.time,
        anchor=grant.anchor or grant.path,
        device=grant.device,
        inode=grant.inode,
    )


def _spot_of(request: Request) -> Spot:
    return Spot(request.path, request.anchor, request.device, request.inode)


def _followed(path: str) -> Spot:
    if not path.startswith("/") or "\0" in path:
        raise InvalidArgumentsError([Fault("path", "must be an absolute path such as /srv/data")])
    try:
        found = spot(path)
        # What is stored, shown and sent is text.
        found.path.encode()
        return found
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidArgumentsError([Fault("path", f"cannot be followed: {reason}")]) from None


def is_there(grant: Grant) -> bool:
    """Whether what a grant is bound to is where it was: itself, or where it was to be made."""
    try:
        found = os.lstat(grant.anchor or grant.path)
    except OSError as error:
        # Who may not look cannot know.
        return error.errno not in (errno.ENOENT, errno.ENOTDIR)
    return (found.st_dev, found.st_ino) == (grant.device, grant.inode)


def _is_for(grant: Grant, caller: Caller, session: str) -> bool:
    if grant.user != caller.user or grant.who not in ("", caller.who):
        return False
    return grant.duration == "once" or not grant.who or grant.session == session


def _lifts(grant: Grant, denial: Request) -> bool:
    """Whether a grant is a later word on the same place, or on one inside of it."""
    return covers(denial.path, grant.path) and grant.order > denial.order


def _refused(path: str, name: str) -> str:
    return (
        f"the owner refused {path}: do not ask again; the owner may allow it after all: "
        f"edged grant {name} once"
    )


def _trim(table: dict[str, Any], most: int) -> None:
    while len(table) > most:
        del table[next(iter(table))]
