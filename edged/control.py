"""What every door offers beside calling: sessions, descriptions, switches, status.

The doors translate their wire to these methods and back; rights are checked here.
Loop thread only.
"""

from __future__ import annotations

import asyncio
import binascii
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Literal

import msgspec

from edged import __version__
from edged.acts import Switches, reset
from edged.audit import Record
from edged.dispatch import Dispatcher
from edged.errors import DeniedError, Fault, InvalidArgumentsError
from edged.events import Event, visible
from edged.identity import LOCAL_USER, Caller, is_user
from edged.policy import Answer, facts
from edged.registry import FORMATS, Registry, Session, State
from edged.services import Services
from edged.tokens import Tokens
from edged.tool import Permissions
from edged.units import amount, row

MEDIA_PART = 256 << 10
"""Bytes of a medium in one message."""

_TOLD_BY = frozenset({"sensor", "gpio", "actuator"})
"""First parts of events' names that are tools: who may not read there hears nothing either."""

SESSIONS = 512
"""Named and identity sessions kept; the longest unused of who has most is dropped."""


class Description(msgspec.Struct, frozen=True):
    """One tool, whole (`edged describe`)."""

    name: str
    label: str
    description: str
    category: str
    config_key: str
    status: str
    reason_code: str
    problem: str
    source: str
    version: int
    sandbox: str
    permissions: Permissions | None
    warnings: tuple[str, ...]
    schema: dict[str, Any]
    body: str
    sensitive: tuple[str, ...] = ()
    """Inputs that are never logged and masked in results."""


class Switched(msgspec.Struct, frozen=True, omit_defaults=True):
    """It is done: families that were switched on along, tools that lack one from now on."""

    status: Literal["ok"]
    switched: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()


class Decision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An owner's word on a permission request, or on a path of a user's.

    Attributes:
        write: with a path, whether it is about writing too; None is about what was asked
            for there, and about reading where nothing was.
    """

    duration: Answer
    request_id: str = ""
    path: str = ""
    user: str = LOCAL_USER
    write: bool | None = None


class Catalogue(msgspec.Struct, frozen=True):
    """How doors make sure that the TOOL.md tools are up to date.

    Attributes:
        fresh: `fresh(user)` looks for changes, at most once a second; None when
            nothing needs waiting for, else what to wait for.
        sync: copies seed tools; `sync(dry_run)`.
        health: facts for `status`.
        look: `look(user)` looks when a tool was added or taken away, and costs two
            `stat` calls else.
    """

    fresh: Callable[[str], asyncio.Future[None] | None]
    sync: Callable[[bool], Awaitable[dict[str, Any]]]
    health: Callable[[], dict[str, Any]]
    look: Callable[[str], None] = lambda _user: None


class Control:
    """The daemon as its doors see it."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        catalogue: Catalogue,
        tokens: Tokens,
        *,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        listeners: Callable[[], list[str]],
        authenticate: Callable[[Mapping[str, str]], Caller | None] | None = None,
        health: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        """The daemon as its doors see it.

        Args:
            dispatcher: runs tools.
            catalogue: keeps TOOL.md tools fresh.
            tokens: of HTTP callers.
            spawn: starts a task of the daemon's group.
            listeners: where the daemon listens.
            authenticate: who sent these HTTP headers, in place of tokens; only
                `edged.testing` gives one.
            health: facts of further parts for `status`.
        """
        self._health = health
        self.dispatcher = dispatcher
        self.registry: Registry = dispatcher.registry
        self.services: Services = dispatcher.services
        self.catalogue = catalogue
        self.tokens = tokens
        self.spawn = spawn
        self.authenticate = authenticate
        self.seal_key = os.urandom(32)
        """What MCP's clients carry between two requests is sealed with it."""
        self.open_states: dict[tuple[str, str, str], dict[str, None]] = {}
        """What they have of that and may send once (`edged.mcp.seal`)."""
        self.reads = asyncio.Semaphore(2)
        """Turns at media that are read whole."""
        self.resources: list[Any] = []
        """What there is to read beside edged's own (`edged.mcp.resources.Source`)."""
        self.prompts: list[Any] = []
        """Prompts beside the skills (`edged.mcp.prompts.Source`)."""
        self.tasks: Any = None
        """Calls that go on after their answer (`edged.mcp.tasks.Tasks`); None before the first."""
        self._listeners = listeners
        self._health = health
        self._sessions: dict[tuple[str, str], Session] = {}
        self._started = self.services.clock.monotonic()

    def session(self, caller: Caller) -> Session:
        """The session of a caller that has no connection of its own to hold it."""
        identity = not caller.session
        key = (caller.user, caller.session)
        session = self._sessions.pop(key, None)
        if session is None:
            if len(self._sessions) >= SESSIONS:
                # Of the user who has most: nobody's many cost another the own.
                most = Counter(user for user, _ in self._sessions).most_common(1)[0][0]
                del self._sessions[next(key for key in self._sessions if key[0] == most)]
            session = Session(caller.session, self.services.clock, by_clock=identity)
        self._sessions[key] = session
        return session

    def describe(self, caller: Caller, name: str, session: Session | None = None) -> Description:
        """One tool with schema, permissions and body; disabled and blocked ones too.

        Raises:
            UnknownToolError: none of that name for the caller.
        """
        session = session or self.session(caller)
        if caller.is_owner:
            hidden = self.registry.view(caller.user).hidden
            tool = hidden.get(name) or self.registry.find(caller.user, name, session)
        else:
            tool = self.registry.find(caller.user, name, session)
        status, reason = self.registry.status(tool)
        # A tool that cannot be read has no inputs to show.
        schema = {} if reason == "invalid" else tool.schema
        return Description(
            tool.name,
            tool.label,
            tool.description,
            tool.category,
            tool.config_key,
            status,
            reason,
            self.registry.problem(tool),
            tool.source,
            tool.version,
            tool.sandbox,
            tool.permissions,
            tool.warnings,
            schema,
            tool.body,
            tuple(sorted(tool.sensitive)),
        )

    def states(self, caller: Caller, session: Session) -> list[State]:
        """The management list; an agent learns of a hidden tool by searching for it."""
        rows = self.registry.states(caller.user)
        if caller.is_owner:
            return rows
        promoted = session.promoted()
        return [row for row in rows if not row.hidden or row.name in promoted]

    def switch(self, caller: Caller, name: str, enabled: bool) -> Switched:
        """Switch a tool or a family on or off; stored before it is answered.

        Raises:
            DeniedError: not an owner.
            NotFoundError: no such tool.
            StoreError: it could not be stored, and nothing changed.
        """
        self.require_owner(caller, "switch tools")
        change = self.registry.switch(name, enabled, caller.user)
        self.services.store.save(Switches.FILE, change.switches)
        self.registry.set_switches(change.switches)
        return Switched("ok", change.switched, change.blocked)

    def reset(self, caller: Caller, key: str) -> dict[str, Any]:
        """Drop what owners set at run time for a key of the configuration, or below it.

        Raises:
            DeniedError: not an owner.
            NotFoundError: nothing was set there.
            StoreError: it could not be stored, and nothing changed.
        """
        self.require_owner(caller, "change settings")
        from edged.overrides import overrides  # noqa: PLC0415  only for who looks at all of them

        services = self.services
        acts = overrides(
            services.store,
            switches=self.registry.set_switches,
            web=lambda: services.web().reload(),
            mcp_servers=lambda names: services.mcp_servers().forget(names),
        )
        return reset(acts, key)

    def web_search(self, caller: Caller, body: Any = None) -> Any:
        """The settings of web search without keys, after a change where there is one.

        Args:
            caller: an owner.
            body: `edged.web.settings.WebSearchBody`, or None.

        Raises:
            DeniedError: not an owner.
            InvalidArgumentsError: something is wrong with the new ones.
            StoreError: they could not be stored.
        """
        self.require_owner(caller, "see and change the settings of web search")
        web = self.services.web()
        return web.config() if body is None else web.configure(body)

    async def mcp_server(
        self,
        caller: Caller,
        action: str,
        name: str,
        addition: Any = None,
        *,
        purge: bool = False,
    ) -> Any:
        """See, add, test or remove other MCP servers.

        Args:
            caller: an owner.
            action: `list`, `show`, `add`, `test` or `remove`.
            name: of the server, but for `list` and `add`.
            addition: `edged.mcp.upstream.view.Addition`, of `add`.
            purge: `remove` erases its home too.

        Raises:
            DeniedError: not an owner.
            NotFoundError: no such server.
            ExistsError: there is one of that name.
            InvalidArgumentsError: no such name.
            UpstreamError: it does not answer.
            StoreError: it is not stored.
        """
        self.require_owner(caller, "see and change MCP servers")
        servers = self.services.mcp_servers()
        if action == "add":
            return await servers.add(addition.name, addition.server, replace=addition.replace)
        if action == "test":
            return await servers.test(name)
        if action == "remove":
            return await servers.remove(name, purge=purge)
        return servers.row(name) if action == "show" else servers.rows()

    def definitions(self, caller: Caller, session: Session, form: str) -> bytes:
        """All tools that an agent may be told of, for one provider: a JSON array."""
        if form not in FORMATS:
            known = ", ".join(FORMATS)
            raise InvalidArgumentsError([Fault("format", f"must be one of {known}")])
        pages = self.registry.pages(caller.user, form, session.promoted())
        if len(pages) == 1:
            return pages[0]
        return b"[" + b",".join(page[1:-1] for page in pages) + b"]"

    def log(self, caller: Caller, limit: int) -> list[Record]:
        """The newest audit records: all for an owner, its own for an agent."""
        return self.services.trail.recent(limit, None if caller.is_owner else caller.user)

    def media(self, caller: Caller, reference: str, offset: int) -> dict[str, Any]:
        """A part of a medium, at most `MEDIA_PART`, as base64; `next` is None at its end.

        Raises:
            NotFoundError: none, expired, or another user's.
            StoreError: it cannot be read.
        """
        media = self.services.media
        medium = media.get(caller.user, reference, owner=caller.is_owner)
        data = media.read(medium, offset, MEDIA_PART)
        end = max(offset, 0) + len(data)
        return {
            "data": binascii.b2a_base64(data, newline=False).decode(),
            "mime_type": medium.mime_type,
            "name": medium.name,
            "size": medium.size,
            "next": end if data and end < medium.size else None,
        }

    def permissions(self, caller: Caller) -> dict[str, Any]:
        """Requests that wait, what was refused, and what is granted now.

        Raises:
            DeniedError: not an owner.
        """
        self.require_owner(caller, "see permission requests")
        policy = self.services.policy
        return {
            "requests": [facts(one) for one in policy.pending()],
            "denied": [facts(one) for one in policy.denied()],
            "grants": [
                {
                    "id": one.id,
                    "user": one.user,
                    "path": one.path,
                    "write": one.write,
                    "duration": one.duration,
                    "session": one.session,
                    "asked_by": one.who,
                    "time": one.time,
                }
                for one in policy.grants()
            ],
        }

    def permit(self, caller: Caller, decision: Decision) -> None:
        """Answer a request by its id, or all of a user's for a path, asked for or not.

        A permission to read answers no request to write, and a denial of writing none to read.

        Raises:
            DeniedError: not an owner, or the session that asked.
            NotFoundError: no such request.
            InvalidArgumentsError: neither or both are named, or no such path or user.
            StoreError: it is not stored.
        """
        self.require_owner(caller, "answer permission requests")
        policy, request_id, path = self.services.policy, decision.request_id, decision.path
        if bool(request_id) == bool(path):
            raise InvalidArgumentsError([Fault("request_id", "give one of request_id and path")])
        if request_id:
            user, path = policy.named(request_id)
            policy.answer(request_id, decision.duration, caller)
            if decision.duration == "deny":
                self._take_back(user, path)
            return
        if not is_user(decision.user):
            reason = "must be an e-mail identity such as ada@example.org, or local"
            raise InvalidArgumentsError([Fault("user", reason)])
        place = policy.place(path, plain=decision.duration != "deny")
        asked, write = policy.waiting_for(decision.user, place), decision.write
        if write is not None:
            is_denied = decision.duration == "deny"
            asked = [one for one in asked if one.write in (write, is_denied)]
        for request in asked:
            policy.answer(request.id, decision.duration, caller, write=write)
        if not asked:
            self._check_known(decision.user)
            policy.decide(decision.user, place, decision.duration, caller, write=bool(write))
        if decision.duration == "deny":
            self._take_back(decision.user, place.path)

    def _take_back(self, user: str, path: str) -> None:
        """What runs with a place in sight that is no longer granted comes to its end."""
        if self.services.shell is not None:
            self.services.shell.take_back(user, path)

    def _check_known(self, user: str) -> None:
        """Refuse to decide for a user whom nobody here is: most probably it is misspelt."""
        mapped = self.services.config.users.values()
        known = {LOCAL_USER, *(one if isinstance(one, str) else one.user for one in mapped)}
        known |= {token.user for token in self.tokens.rows()}
        # Or it has called before.
        if user not in known and not os.path.isdir(os.path.join(self.services.data, user)):
            reason = f"nobody here is {user}: there are {', '.join(sorted(known))}"
            raise InvalidArgumentsError([Fault("user", reason)])

    def forget_permission(self, caller: Caller, name: str) -> None:
        """Take a grant back, lift a denial or drop a request.

        Raises:
            DeniedError: not an owner.
            NotFoundError: none of that id.
            StoreError: it is not stored.
        """
        policy = self.services.policy
        gone = next((one for one in policy.grants() if one.id == name), None)
        policy.forget(name, caller)
        if gone is not None:
            self._take_back(gone.user, gone.path)

    def session_ended(self, caller: Caller) -> None:
        """A connection with a session of its own is gone, and what was the session's."""
        for part in (self.services.policy, self.services.shell):
            if part is not None:
                part.end(caller.user, caller.session)

    def is_on(self, caller: Caller, name: str) -> bool:
        """Whether a caller has a tool, and it is enabled."""
        return self._status(caller, name) == "enabled"

    def is_shown(self, caller: Caller, name: str) -> bool:
        """Whether a caller sees what a tool has told: not an agent where that is off."""
        return caller.is_owner or self._status(caller, name) in ("enabled", "")

    def _status(self, caller: Caller, name: str) -> str:
        """Of a tool; empty where there is none of that name."""
        view = self.registry.view(caller.user)
        tool = view.tools.get(name) or view.hidden.get(name)
        return self.registry.status(tool)[0] if tool is not None else ""

    def may_see(self, caller: Caller, event: Event) -> bool:
        """Whether a caller may see an event."""
        if not visible(event, caller.user, owner=caller.is_owner):
            return False
        about = event.kind.partition(".")[0]
        return about not in _TOLD_BY or self.is_shown(caller, about)

    def sensors(self, caller: Caller) -> list[dict[str, Any]]:
        """The configured sensors with their last readings, as `GET /api/sensors` shows them.

        Without readings for an agent while the tool `sensor` is off.
        """
        found = (self.sensor(caller, info.name) for info in self.services.board.sensors)
        return [one for one in found if one is not None]

    def sensor(self, caller: Caller, name: str) -> dict[str, Any] | None:
        """One of these; None where there is none of that name."""
        board, now = self.services.board, self.services.clock.monotonic()
        info = board.sensor_info(name)
        if info is None:
            return None
        shown = self.is_shown(caller, "sensor")
        return {
            **msgspec.to_builtins(info),
            "alarms": dict(board.alarms(name)) if shown else {},
            "readings": [row(one, now) for one in board.latest(name)] if shown else [],
        }

    def _alarms(self) -> dict[str, str]:
        """Channels out of their bounds, with what they are now: `above: 33.1 °C`."""
        board = self.services.board
        found = {}
        for info in board.sensors:
            now = {
                one.channel: f": {amount(one.value, one.unit)}"
                for one in board.latest(info.name)
                if one.value is not None
            }
            for channel, state in board.alarms(info.name).items():
                found[f"{info.name} {channel}"] = f"{state}{now.get(channel, '')}"
        return found

    async def scan(self, bus: str) -> dict[str, Any]:
        """What is on the board, or on one I2C bus.

        Raises:
            NoDeviceError: no such bus.
        """
        from edged.board.scan import scan_board  # noqa: PLC0415  imports every driver

        board = self.services.board
        found = await scan_board(board.buses, self.services.clock, only=bus, holder=board.holder)
        found = msgspec.structs.replace(found, simulated=board.simulated)
        return msgspec.to_builtins(found)  # type: ignore[no-any-return]  # a Struct becomes a dict

    def status(self, caller: Caller) -> dict[str, Any]:
        """Health of every part."""
        services = self.services
        rows = self.registry.states(caller.user)
        counts: dict[str, int] = {}
        for state in rows:
            counts[state.status] = counts.get(state.status, 0) + 1
        return {
            "version": __version__,
            "uptime_s": round(services.clock.monotonic() - self._started, 1),
            "user": caller.user,
            "role": caller.role,
            "data": services.data,
            "listen": self._listeners(),
            "calls_running": self.dispatcher.running,
            "tools": counts,
            "audit_lost": services.trail.lost,
            "board": {
                "sensors": {s.name: s.error or s.state for s in services.board.sensors},
                "lines": {line.name: line.error or "ok" for line in services.board.lines},
                "actuators": {a.name: a.error or "ok" for a in services.board.actuators},
                "alarms": self._alarms() if self.is_shown(caller, "sensor") else {},
            },
            **self._parts(caller),
            **self.catalogue.health(),
        }

    def _parts(self, caller: Caller) -> dict[str, Any]:
        """Facts of further parts; what other servers write to standard error is for owners."""
        found = self._health()
        if not caller.is_owner and "mcp" in found:
            found["mcp"] = {name: {**one, "stderr": ""} for name, one in found["mcp"].items()}
        return found

    @staticmethod
    def require_owner(caller: Caller, act: str) -> None:
        """Refuse what agents may not do.

        Raises:
            DeniedError: the caller is an agent.
        """
        if not caller.is_owner:
            who = caller.peer or caller.user
            raise DeniedError(f"only an owner may {act}; {who} is an agent")
