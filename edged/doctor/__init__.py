"""Looks at a machine and says what keeps edged, or a part of it, from working.

Each finding is true on its own: a daemon that answers is asked, and what it says of
itself goes before what this process could find out with other rights. Nothing is
changed but for the empty control groups of dead daemons.
"""

from __future__ import annotations

import asyncio
import glob
import grp
import os
import pwd
import re
import socket
import stat
import struct
import sys
import time
from collections.abc import Collection, Iterator
from typing import Any, Literal, NamedTuple

import msgspec

from edged import __version__, plugins, runtimes, settings
from edged.client import SocketClient
from edged.clock import SystemClock
from edged.doctor import board
from edged.doctor.finding import Finding, Level
from edged.errors import ConfigError, DeniedError, EdgedError, NoDaemonError, SandboxSetupError
from edged.registry import FAMILIES
from edged.sandbox import limits
from edged.sandbox.account import tool_account
from edged.sandbox.probe import Capability, probe
from edged.settings import Loaded
from edged.toolmd import discover, sync
from edged.transports.http import Address, parse
from edged.yamlio import nearest

PYTHON_MIN = (3, 11)
SPACE_LOW, SPACE_NONE = 200 << 20, 20 << 20
"""Free bytes of the data directory below which it gets tight, and too tight."""

DEVICES = ("i2c-*", "spidev*", "gpiochip*", "ttyAMA*", "ttyUSB*", "ttyACM*")
CLOCK_FIRST = 1_735_689_600
"""2025-01-01: a clock before it was never set."""

ANSWER_S = 3.0
"""How long an HTTP listener may take to say who it is."""

_HEAD_MAX = 16 << 10
_ASK = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
_LISTENS = "0A"
"""TCP_LISTEN of include/net/tcp_states.h, as /proc/net/tcp prints it."""

_TIME_ERROR = 5
_TIMEX_SIZE = 512
"""`struct timex` has 208 bytes (adjtimex(2)); this is room enough for any machine."""


class Places(msgspec.Struct, frozen=True):
    """Where to look.

    Attributes:
        config: the configuration file; need not exist.
        explicit: it was named, so it must exist.
        data: the data directory that a daemon started here would use.
        socket: where a daemon may answer.
        seed: the tools that came with edged.
        dev: device nodes.
        proc: of the kernel.
        run: of the system.
        sysfs: of the kernel's drivers.
    """

    config: str
    explicit: bool
    data: str
    socket: str
    seed: str
    dev: str = "/dev"
    proc: str = "/proc"
    run: str = "/run"
    sysfs: str = "/sys"


class Running(msgspec.Struct, frozen=True):
    """What a daemon that answers says of itself.

    Attributes:
        status: as `edged status` shows it.
        states: its tools, as `edged tools --all` shows them.
        seeds: what a sync would do; None where this user may not ask.
        agents: this user's agents, as `edged agents --json` shows them.
    """

    status: dict[str, Any]
    states: list[dict[str, Any]]
    seeds: list[sync.Action] | None
    agents: dict[str, Any] = {}


def examine(places: Places) -> Iterator[Finding]:
    """All findings, in the order in which a person would mend them."""
    yield python(sys.version_info[:3])
    loaded, finding = configuration(places)
    yield finding
    running, found = daemon(places)
    yield from found
    if loaded is not None:
        yield from doubtful(loaded, _tool_names(places, running))
    if running is not None:
        yield from of_daemon(running, places)
    else:
        yield from of_machine(places, loaded)
    yield user_namespaces(places.proc)
    yield from languages()
    yield clock(places.run, time.time())
    yield from devices(places.dev)
    if loaded is not None:
        yield from board.examine(loaded, places.dev, places.sysfs, places.proc)


def of_daemon(running: Running, places: Places) -> Iterator[Finding]:
    """What the daemon's own word is worth more for than a look from outside."""
    status = running.status
    data = str(status["data"])
    yield in_use(data)
    yield free_space(data)
    told = status.get("sandbox", {})
    if "ok" in told:
        known = {key: told[key] for key in Capability.__struct_fields__ if key in told}
        found = msgspec.convert(known, Capability)
        yield from capability(found, told.get("limits", ""), places.run)
    else:
        yield unconfined()
    yield from listeners([str(one) for one in status["listen"]], _owner(data), places.proc)
    if running.seeds is None:
        yield Finding("seed tools", "note", "only an owner may ask the daemon about them")
    else:
        yield from seeds(running.seeds)
    yield from listed_tools(running.states)
    yield from mcp_servers(status.get("mcp", {}))
    yield from messages(status.get("messages", {}), data)
    yield from agents(running.agents)


def _tool_names(places: Places, running: Running | None) -> set[str] | None:
    """Names of the built-in tools, and of everyone's; None where those are not to be seen."""
    package = "edged.tools"
    modules = [plugins.load(package, name) for name in plugins.names(package)]
    data = places.data if running is None else str(running.status["data"])
    listed = [] if running is None else running.states
    if os.path.isdir(data) and not os.access(data, os.R_OK | os.X_OK):
        return None
    came = discover.scan(places.seed, "global", discover.Cache(), time.time())
    return {
        *(tool.name for module in modules for tool in module.TOOLS),
        *(str(row["name"]) for row in listed),
        *(entry.name for entry in (*came, *_entries(data))),
    }


def of_machine(places: Places, loaded: Loaded | None) -> Iterator[Finding]:
    """What a daemon that is started here by this user will find."""
    yield data_directory(places.data)
    yield free_space(places.data)
    yield account()
    if loaded is not None and loaded.config.sandbox == "none":
        yield unconfined()
    else:
        yield from sandbox(places.run)
    if loaded is not None:
        yield from addresses(loaded.config.http.listen, places.proc)
    target = os.path.join(places.data, "tools")
    yield from seeds(sync.plan(places.seed, target, discover.Cache(), time.time()))
    yield from tools(places.data)
    names = _tool_names(places, None)
    if names is not None:
        for directory in sorted(glob.glob(f"{glob.escape(places.data)}/*/agents")):
            yield from agents(_read_agents(directory, names))


def _read_agents(directory: str, names: set[str]) -> dict[str, Any]:
    """The agents of a user whom no daemon serves now, as one would tell of them."""
    from edged.agents.store import Agents, doubts  # noqa: PLC0415  where there are any

    data, user = os.path.split(os.path.dirname(directory))
    try:
        found = Agents(data, SystemClock()).listing(user)
    except EdgedError as error:
        return {"problems": [{"file": directory, "reason": str(error)}]}
    rows = [{"slug": one.slug, "warnings": doubts(one, names)} for one in found.agents]
    return {"agents": rows, "problems": msgspec.to_builtins(found.problems)}


def agents(told: dict[str, Any]) -> Iterator[Finding]:
    """Agents of which something is wrong."""
    for problem in told.get("problems", ()):
        text = f"{problem['file']}: {problem['reason']}"
        yield Finding("agents", "warning", text, "mend the file; until then it is no agent")
    for agent in told.get("agents", ()):
        for warning in agent.get("warnings", ()):
            yield Finding("agents", "warning", f"agent {agent['slug']}: {warning}")


def python(version: tuple[int, ...]) -> Finding:
    """The interpreter that runs this."""
    text = f"Python {'.'.join(map(str, version))} ({sys.executable})"
    if version < PYTHON_MIN:
        return Finding("python", "fault", text, "install Python 3.11 or newer")
    return Finding("python", "ok", text)


def configuration(places: Places) -> tuple[Loaded | None, Finding]:
    """The file, and whether it can be used."""
    try:
        loaded = settings.load(places.config, explicit=places.explicit)
        for address in loaded.config.http.listen:
            _check(address, loaded)
        board.check(loaded)
    except ConfigError as error:
        # What is in no line says itself what to do.
        has_line = error.line or error.faults
        remedy = "mend the line; `edged config` checks it again" if has_line else ""
        return None, Finding("configuration", "fault", str(error), remedy)
    if not loaded.file:
        text = f"{places.config} is not there: defaults hold"
        return loaded, Finding("configuration", "ok", text)
    return loaded, Finding("configuration", "ok", f"{loaded.file} is valid")


def _check(address: str, loaded: Loaded) -> None:
    try:
        parse(address)
    except ConfigError as error:
        raise loaded.located(error) from None


def doubtful(loaded: Loaded, names: Collection[str] | None) -> Iterator[Finding]:
    """What the configuration says of things that are not there.

    Args:
        loaded: the configuration.
        names: of all tools; None where they are not known.
    """
    for name in () if names is None else sorted(loaded.tools.keys() - set(names)):
        guess = nearest(name, names or ())
        hint = f"; did you mean {guess!r}?" if guess else ""
        odd = ConfigError(f"there is no such tool{hint}", key=f"tools.{name}")
        yield Finding("configuration", "warning", str(loaded.located(odd)))
    group = loaded.config.socket.group
    reason = loaded.located(ConfigError(f"there is no group {group!r} here", key="socket.group"))
    # The usual group is of use only where one is made for it.
    if reason.line and not _is_group(group):
        remedy = f"make it (groupadd {group}), or name another; until then only you can connect"
        yield Finding("configuration", "warning", str(reason), remedy)


def _is_group(name: str) -> bool:
    try:
        grp.getgrnam(name)
    except KeyError:
        return False
    return True


def daemon(places: Places) -> tuple[Running | None, list[Finding]]:
    """A daemon, where one answers; and what is to be said of it."""
    try:
        client = SocketClient(places.socket)
    except NoDaemonError as error:
        told, _, remedy = str(error).partition(": ")
        # Nothing is wrong when nobody has started it yet.
        level: Level = "note" if told.startswith("no daemon") else "warning"
        return None, [Finding("daemon", level, told, remedy)]
    try:
        running = _asked(client)
    except EdgedError as error:
        return None, [Finding("daemon", "fault", str(error), "see its log, and start it again")]
    finally:
        client.close()
    status = running.status
    about = f"version {status['version']}, up {status['uptime_s']:.0f} s, {places.socket}"
    found = [Finding("daemon", "ok", f"{about}; you are {status['user']}, {status['role']}")]
    if status["version"] != __version__:
        text = f"it runs version {status['version']}, and this is {__version__}"
        found.append(Finding("daemon", "warning", text, "start it again"))
    again = "mend it, and start it again"
    found += [Finding("daemon", "warning", str(p), again) for p in status.get("problems", ())]
    if status.get("audit_lost"):
        found.append(audit_lost(int(status["audit_lost"]), str(status["data"])))
    return running, found


def audit_lost(count: int, data: str) -> Finding:
    """Calls that left no record, and the likely cause."""
    lost = f"{count} records of the audit trail were lost"
    if count == 1:
        lost = "1 record of the audit trail was lost"
    path = os.path.join(data, "audit")
    shut = closed(path)
    if shut:
        return Finding("audit", "warning", f"{lost}: {path} {shut}", _OPEN.format(path))
    if free_space(data).level != "ok":
        return Finding("audit", "warning", lost, "free some space: the disk is full")
    return Finding("audit", "warning", lost, "the daemon's log says why")


def in_use(data: str) -> Finding:
    """Whether the daemon can still write its directories, as far as their modes say it."""
    for name in ("", "state"):
        path = os.path.join(data, name).rstrip("/")
        shut = closed(path)
        if shut:
            return Finding("data", "fault", f"{path} {shut}", _OPEN.format(path))
    return Finding("data", "ok", f"{data}, in use by the daemon")


_OPEN = "chmod u+rwx {}"


def closed(path: str) -> str:
    """Why the owner of a directory cannot write there; empty when nothing says so."""
    try:
        found = os.stat(path)
        read_only = os.statvfs(path).f_flag & os.ST_RDONLY
    except OSError:
        # Not for this user to see.
        return ""
    if read_only:
        return "is on a file system that is mounted read-only"
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid != 0 and mode & stat.S_IRWXU != stat.S_IRWXU:
        return f"is closed to its owner (mode {mode:03o})"
    return ""


def _asked(client: SocketClient) -> Running:
    status = client.request("edged/status")
    states = client.request("edged/tools/state")["tools"]
    listed = client.request("edged/agents", {"action": "list"})
    try:
        report = client.request("edged/sync", {"dry_run": True})
    except DeniedError:
        return Running(status, states, None, listed)
    return Running(status, states, msgspec.convert(report["actions"], list[sync.Action]), listed)


def data_directory(path: str) -> Finding:
    """Whether the data directory can be written."""
    name = "data"
    there = _existing(path)
    if not os.access(there, os.W_OK | os.X_OK) or not os.path.isdir(there):
        remedy = "choose another with --data or DATA_PATH, or make it yours"
        return Finding(name, "fault", f"{path}: {there} cannot be written by you", remedy)
    if there != path:
        return Finding(name, "ok", f"{path}, made at the first start")
    return Finding(name, "ok", f"{path} can be written")


def free_space(path: str) -> Finding:
    """Room on the file system of the data directory."""
    try:
        found = os.statvfs(_existing(path))
    except OSError as error:
        return Finding("space", "note", f"{path}: {error.strerror}")
    free = found.f_bavail * found.f_frsize
    text = f"{free >> 20} MiB free for {path}"
    if free >= SPACE_LOW:
        return Finding("space", "ok", text)
    level: Level = "fault" if free < SPACE_NONE else "warning"
    return Finding("space", level, text, "free some space, or move the data directory")


def _existing(path: str) -> str:
    """The path, or its nearest parent that is there."""
    path = os.path.abspath(path)
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return path


def account() -> Finding:
    """Whom tools of a daemon started by this user would run as."""
    try:
        who = tool_account()
    except SandboxSetupError as error:
        told, _, remedy = str(error).partition("; ")
        return Finding("account", "fault", told, remedy)
    return Finding("account", "ok", f"tools run as {who.name} (uid {who.uid})")


def unconfined() -> Finding:
    """What `sandbox: none` means."""
    remedy = "remove `sandbox: none` from the configuration"
    return Finding("sandbox", "warning", "switched off: tools run unconfined", remedy)


def sandbox(run: str) -> Iterator[Finding]:
    """Bubblewrap and the limits, tried here."""
    try:
        who = tool_account()
    except SandboxSetupError:
        yield Finding("sandbox", "fault", "not tried: see account", "mend that first")
        return
    yield from capability(*asyncio.run(_tried(who.uid, who.gid)), run)


async def _tried(uid: int, gid: int) -> tuple[Capability, str]:
    backend = limits.detect()
    try:
        return await probe(backend, uid, gid), backend.describe()
    finally:
        backend.close()


def capability(found: Capability, described: str, run: str) -> Iterator[Finding]:
    """What a trial of the sandbox showed, and what holds its limits.

    Args:
        found: the trial.
        described: by the limits' backend; its remedy after a semicolon.
        run: of the system.
    """
    version = ".".join(map(str, found.version))
    if not found.ok:
        name = f"bubblewrap {version}".strip()
        remedy = found.remedy or "see the message: TOOL.md tools are refused until it works"
        yield Finding("sandbox", "fault", f"{name} does not work: {found.error}", remedy)
        return
    yield Finding("sandbox", "ok", f"bubblewrap {version} works; sandboxes are {found.level}")
    text, _, remedy = described.partition("; ")
    level: Level = "ok" if found.level == "full" else "warning"
    if text:
        if "systemd" in remedy and not has_systemd(run):
            remedy = _NO_GROUPS
        yield Finding("limits", level, text, remedy)
    for warning in found.warnings:
        if warning != described:
            yield Finding("sandbox", "note", warning)
    for note in found.notes:
        yield Finding("sandbox", "note", note, _OLD_BUBBLEWRAP)


_OLD_BUBBLEWRAP = "nothing to do: it concerns no sandbox that edged makes"
_NO_GROUPS = "start edged as root, or give it a control group of its own that it may write"
"""Where no systemd can delegate a control group."""


def has_systemd(run: str) -> bool:
    """Whether systemd runs this system (sd_booted(3))."""
    return os.path.isdir(f"{run}/systemd/system")


def user_namespaces(proc: str) -> Finding:
    """What the kernel's switches say; the sandbox's own trial is the proof."""
    name = "namespaces"
    switches = (
        ("sys/user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=15000"),
        ("sys/kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
        (
            "sys/kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "an AppArmor profile for bwrap that has `userns,`",
        ),
    )
    if not os.path.exists(f"{proc}/self/ns/user"):
        return Finding(name, "fault", "the kernel has no user namespaces", "CONFIG_USER_NS=y")
    for file, closed, remedy in switches:
        if _first_line(f"{proc}/{file}") == closed:
            text = f"{file.removeprefix('sys/').replace('/', '.')} is {closed}"
            return Finding(name, "note", f"{text}: they may be refused", remedy)
    return Finding(name, "ok", "the kernel lets users make user namespaces")


def languages() -> Iterator[Finding]:
    """What runs the tools of each language."""
    for language in ("python", "bash"):
        found = runtimes.find(language)
        if found.argv:
            yield Finding(language + " tools", "ok", f"run on {found.argv[0]}")
        else:
            text = "there is nothing to run them"
            yield Finding(language + " tools", "warning", text, runtimes.REMEDIES[language])
    node = runtimes.node()
    name = "node tools"
    if node.argv:
        where = node.binds[0].source if node.binds else node.argv[0]
        yield Finding(name, "ok", f"run on Node {node.version} ({where})")
        return
    text = "there is no Node that runs TypeScript"
    old = _system_node()
    if old:
        text += f": {old[0]} is {'.'.join(map(str, old[1])) or 'of an unknown version'}"
    yield Finding(name, "note", text, runtimes.REMEDIES["typescript"])


def _system_node() -> tuple[str, tuple[int, ...]] | None:
    for directory in os.environ.get("PATH", "").split(":"):
        path = os.path.join(directory, "node")
        if directory and os.access(path, os.X_OK):
            return path, runtimes.node_version(path)
    return None


class Answer(NamedTuple):
    """Who answers at an HTTP address.

    Attributes:
        kind: `nobody`; `closed` to this user; `silent`: it takes connections and says
            nothing; `edged`, or some `other` program.
        name: what another program calls itself.
        status: of HTTP.
        uid: who made the listening socket; None where that is not known.
    """

    kind: Literal["nobody", "closed", "silent", "edged", "other"]
    name: str = ""
    status: int = 0
    uid: int | None = None


def listeners(listen: list[str], owner: int | None, proc: str) -> Iterator[Finding]:
    """Each HTTP listener of a daemon: whether it is that daemon that answers.

    Args:
        listen: as it says; the first address is the socket.
        owner: uid of its data directory; None where that is not known.
        proc: of the kernel.
    """
    if len(listen) < 2:
        yield Finding("http", "note", "no HTTP listener is configured")
    see_log = "see the daemon's log"
    for address in listen[1:]:
        found = answer(address, proc)
        # A socket that systemd made for the daemon is root's.
        foreign = None not in (found.uid, owner) and found.uid not in (0, owner)
        if found.kind == "edged" and not foreign:
            level: Level = "ok" if found.status == 200 else "warning"
            text = f"{address} answers" + ("" if level == "ok" else f" {found.status}")
            yield Finding("http", level, text, "" if level == "ok" else see_log)
        elif found.kind in ("edged", "other"):
            text = f"{_who(found)} answers on {address} in place of the daemon"
            yield Finding("http", "warning", text, "end it, or choose another http.listen")
        elif found.kind == "closed":
            yield Finding("http", "note", f"{address} is not open to you")
        elif found.kind == "silent":
            text = f"{address} takes connections and does not answer within {ANSWER_S:g} s"
            yield Finding("http", "warning", text, see_log)
        else:
            yield Finding("http", "warning", f"{address} does not answer", see_log)


def addresses(listen: list[str], proc: str) -> Iterator[Finding]:
    """Each address that a daemon will listen on: whether it is free, or whose it is."""
    for address in listen:
        found = answer(address, proc)
        if found.kind == "nobody":
            yield Finding("http", "ok", f"{address} is free for the daemon")
            continue
        text = f"{_who(found)} answers on {address}"
        remedy = "end it, or choose another http.listen"
        if found.kind in ("closed", "silent"):
            text = f"{address} is taken by a program that does not say what it is"
        elif found.kind == "edged":
            remedy = "use it (--url, with a token), or choose another http.listen"
        yield Finding("http", "warning", text, remedy)


def _who(found: Answer) -> str:
    """A program that answers, in words."""
    if found.kind == "other":
        return f"another program ({found.name})" if found.name else "another program"
    if found.uid is None:
        return "another edged"
    try:
        user = pwd.getpwuid(found.uid).pw_name
    except KeyError:
        user = f"uid {found.uid}"
    return "another edged of yours" if found.uid == os.geteuid() else f"the edged of {user}"


def _owner(path: str) -> int | None:
    try:
        return os.stat(path).st_uid
    except OSError:
        return None


def answer(address: str, proc: str) -> Answer:
    """Ask for `/healthz`; takes `ANSWER_S` seconds at most for the answer.

    Args:
        address: as in `http.listen`, or with `http://`.
        proc: of the kernel.
    """
    where = parse(address.removeprefix("http://"))
    family = socket.AF_INET6 if ":" in where.host else socket.AF_INET
    target: Any = (where.host, where.port)
    if where.path:
        family, target = socket.AF_UNIX, where.path
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        ends = time.monotonic() + ANSWER_S
        sock.settimeout(ANSWER_S)
        try:
            sock.connect(target)
        except TimeoutError:
            return Answer("silent")
        except PermissionError:
            return Answer("closed")
        except OSError:
            return Answer("nobody")
        uid = _peer(sock) if where.path else _listening_uid(proc, where, family)
        head = _head(sock, ends)
    if not head:
        return Answer("silent", uid=uid)
    status = re.match(rb"HTTP/1\.[01] ([0-9]{3})\b", head)
    if status is None:
        return Answer("other", "it does not speak HTTP", uid=uid)
    named = re.search(rb"(?mi)^server:[ \t]*([^\r\n]{1,40})", head)
    name = named[1].decode("ascii", "replace").strip() if named else ""
    return Answer("edged" if name == "edged" else "other", name, int(status[1]), uid)


def _head(sock: socket.socket, ends: float) -> bytes:
    """The head of the answer as far as it came in time; empty when nothing did."""
    head = b""
    try:
        sock.sendall(_ASK)
        while b"\r\n\r\n" not in head and len(head) < _HEAD_MAX:
            sock.settimeout(max(ends - time.monotonic(), 0.001))
            part = sock.recv(4096)
            if not part:
                break
            head += part
    except OSError:
        # What came before it is looked at.
        pass
    return head


def _peer(sock: socket.socket) -> int:
    """Who listens behind a Unix socket: pid, uid and gid of SO_PEERCRED (unix(7))."""
    size = struct.calcsize("3i")
    uid: int = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))[1]
    return uid


def _listening_uid(proc: str, where: Address, family: int) -> int | None:
    """Who listens on a TCP address; None where the kernel does not say.

    Source: proc_net(5): local address in hexadecimal words of the machine's order, state, uid.
    """
    packed = socket.inet_pton(family, where.host)
    exact = "".join(f"{word:08X}" for word in struct.unpack(f"={len(packed) // 4}I", packed))
    uids: dict[str, int] = {}
    for name in ("tcp", "tcp6"):
        try:
            with open(f"{proc}/net/{name}", encoding="ascii") as file:
                rows = [line.split() for line in file][1:]
        except OSError:
            continue
        for row in rows:
            host, _, port = row[1].partition(":")
            if row[3] == _LISTENS and int(port, 16) == where.port:
                uids[host] = int(row[7])
    # The address itself before those that stand for every one.
    return next((uids[host] for host in (exact, "0" * 8, "0" * 32) if host in uids), None)


def seeds(actions: list[sync.Action]) -> Iterator[Finding]:
    """The tools that came with edged against those of the data directory."""
    name = "seed tools"
    due = [a.name for a in actions if a.kind in ("add", "update")]
    if due:
        text = f"to be copied: {', '.join(due)}"
        yield Finding(name, "note", text, "the daemon does it when it starts; or edged sync")
    elif any(a.kind in ("keep", "differs") for a in actions):
        yield Finding(name, "ok", "up to date")
    else:
        yield Finding(name, "note", "none came with edged")
    for action in actions:
        if action.kind == "refused":
            yield Finding(name, "warning", f"{action.name} is not copied: {action.reason}")
        elif action.kind == "differs":
            text = f"{action.name} was changed at the same version, and stays as it is"
            yield Finding(name, "note", text)


def tools(data: str) -> Iterator[Finding]:
    """The tools of a data directory that no daemon looks after now."""
    if os.path.isdir(data) and not os.access(data, os.R_OK | os.X_OK):
        yield Finding("tools", "note", f"{data} is not open to you", "look as its owner")
        return
    broken = 0
    for entry in _entries(data):
        problem = entry.problem
        if problem is not None:
            broken += 1
            place = f"{problem.file}:{problem.line}" if problem.line else problem.file
            yield Finding("tools", "warning", f"{place}: {problem.reason}", problem.remedy)
    if not broken:
        yield Finding("tools", "ok", f"nothing is wrong with those in {data}")


def _entries(data: str) -> Iterator[discover.Entry]:
    """The tools of a data directory, everyone's."""
    roots = [os.path.join(data, "tools"), *sorted(glob.glob(f"{glob.escape(data)}/*/tools"))]
    for root in roots:
        origin: discover.Origin = "global" if root == roots[0] else "user"
        yield from discover.scan(root, origin, discover.Cache(), time.time())


def listed_tools(states: list[dict[str, Any]]) -> Iterator[Finding]:
    """The tools that the daemon shows to this caller."""
    blocked = [row for row in states if row["status"] == "blocked"]
    usable = sum(row["status"] == "enabled" for row in states)
    yield Finding("tools", "ok", f"{usable} of {len(states)} can be called")
    for row in blocked:
        usual = row["reason_code"] in ("shadowed", *FAMILIES.values()) or (
            # Whoever wants no messages has no channel.
            (row["reason_code"], row.get("category")) == ("requires_config", "communication")
        )
        level: Level = "note" if usual else "warning"
        text = f"{row['name']} is blocked ({row['reason_code']}): {row['problem']}"
        if row["name"] == row.get("source"):
            # Not a tool, but a directory of them.
            text = row["problem"]
        yield Finding("tools", level, text)


def messages(found: dict[str, Any], data: str) -> Iterator[Finding]:
    """Channels of messages, as the daemon has them.

    Args:
        found: of its status; empty where none is configured, or to an agent.
        data: its directory.
    """
    channels: dict[str, str] = found.get("channels", {})
    troubled = set(found.get("troubled", ()))
    for name, state in channels.items():
        if name in troubled:
            remedy = f"see messages.channels.{name} in edged.yaml; edged call message tries it"
            yield Finding("messages", "warning", f"channel {name}: {state}", remedy)
    if found.get("given_up"):
        text = f"{found['given_up']} messages were given up"
        yield Finding("messages", "note", text, f"they are in {data}/outbox/given-up")
    if channels and not troubled:
        yield Finding("messages", "ok", f"{len(channels)} channels take messages")


def mcp_servers(found: dict[str, dict[str, Any]]) -> Iterator[Finding]:
    """Other MCP servers, as the daemon has them."""
    for name, one in found.items():
        told = f"{name} is {one['state']}, {one['tools']} tools"
        if not one["error"]:
            yield Finding("MCP servers", "ok", told)
        else:
            last = one["stderr"].strip().rpartition("\n")[2]
            said = f"its last line: {last}" if last and last not in one["error"] else ""
            again = f"edged mcp-server test {name} tries it at once"
            remedy = f"{said}; {again}" if said else again
            yield Finding("MCP servers", "warning", f"{told}: {one['error']}", remedy)
        for problem in one["left_out"]:
            yield Finding("MCP servers", "warning", f"{name}: left out: {problem}")


def clock(run: str, now: float) -> Finding:
    """Whether the wall clock can be believed: schedules and logs go by it."""
    told = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(now)) + " UTC"
    if now < CLOCK_FIRST:
        return Finding("clock", "fault", f"it says {told}", f"set it: {_keep(run)}")
    synchronised = os.path.exists(f"{run}/systemd/timesync/synchronized") or _kernel_synchronised()
    if synchronised:
        return Finding("clock", "ok", f"{told}, kept by a time service")
    text = f"{told}, and the kernel knows of no time service"
    return Finding("clock", "note", text, f"{_keep(run)}, where the network allows it")


def _keep(run: str) -> str:
    """How the clock is kept by a time service."""
    if has_systemd(run):
        return "timedatectl set-ntp true"
    return "install a time service such as chrony (in a container: on its host)"


def _kernel_synchronised() -> bool:
    """Whether something disciplines the clock (adjtimex(2), reading only)."""
    import ctypes  # noqa: PLC0415  nothing else of edged's needs it here

    # `modes` is the first field; 0 asks and changes nothing.
    answer: int = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_SIZE))
    return 0 <= answer < _TIME_ERROR


def devices(dev: str) -> Iterator[Finding]:
    """Device nodes of a board that are there and not open to this user."""
    for pattern in DEVICES:
        nodes = sorted(glob.glob(f"{glob.escape(dev)}/{pattern}"))
        closed = [node for node in nodes if not os.access(node, os.R_OK | os.W_OK)]
        if closed:
            remedy = f"join its group: usermod -aG {_group(closed[0])} USER, then log in again"
            text = f"you may not use {', '.join(closed)}"
            yield Finding("devices", "note", text, remedy)


def _group(path: str) -> str:
    try:
        return grp.getgrgid(os.stat(path, follow_symlinks=False)[stat.ST_GID]).gr_name
    except (OSError, KeyError):
        return "of the node"


def _first_line(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.readline().strip()
    except OSError:
        return ""
