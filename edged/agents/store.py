"""Agents as Markdown files: a prompt under YAML front matter, one file each.

Laws: a file's name is its agent's slug, and a slug never leaves the directory; files are
replaced whole; one that cannot be read is told of and never erased; edits by hand are
seen at the next look. Blocking: a few small files.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import unicodedata
from collections.abc import Collection
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from edged import log, yamlio
from edged.clock import Clock, iso
from edged.errors import (
    ConfigError,
    EdgedError,
    ExistsError,
    Fault,
    InvalidArgumentsError,
    NotFoundError,
    StoreError,
)
from edged.store import failed, make_directory, sync_directory, write_atomic
from edged.toolmd import frontmatter

SLUG_MAX = 64
SLUG = r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?"
AGENTS_MAX = 200
"""Of one user."""

PROMPT_MAX = 256 << 10
SEEDS = ".seeds.json"
"""Which agents of the daemon's own a user was given, and what they were then."""

EVERY = "*"
"""A permission for every tool that the caller has."""

_TOOL = r"(?:[A-Za-z0-9_.-]{1,128}\*?|\*)"

_NO_LINE = r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ufffe\uffff]"
"""What ends a line somewhere, or may not be in YAML."""

Status = Literal["enabled", "disabled"]
Line = Annotated[str, Meta(min_length=1, max_length=200)]


class Agent(msgspec.Struct, frozen=True, omit_defaults=True):
    """One agent, in the specification's shape; times are RFC 3339.

    Attributes:
        warnings: what is probably not meant so, for people; absent where there is nothing.
    """

    slug: str
    name: str
    description: str
    system_prompt: str
    model: str
    tool_permissions: tuple[str, ...]
    status: Status
    created_at: str
    updated_at: str
    warnings: tuple[str, ...] = ()


class Problem(msgspec.Struct, frozen=True):
    """A file that is no agent, or is one that something is wrong with."""

    file: str
    reason: str


class Listing(msgspec.Struct, frozen=True):
    """All agents of a user, by slug, and what could not be read."""

    agents: tuple[Agent, ...]
    problems: tuple[Problem, ...] = ()


class Creation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a new agent is made of (`AgentCreateRequest` of the specification)."""

    name: Line
    system_prompt: Annotated[str, Meta(min_length=1, max_length=PROMPT_MAX)]
    model: Line
    description: Annotated[str, Meta(max_length=2_000)] = ""
    tool_permissions: Annotated[list[str], Meta(max_length=500)] = []
    status: Status = "enabled"


class Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is to be another; None stays."""

    name: Line | None = None
    system_prompt: Annotated[str, Meta(min_length=1, max_length=PROMPT_MAX)] | None = None
    model: Line | None = None
    description: Annotated[str, Meta(max_length=2_000)] | None = None
    tool_permissions: Annotated[list[str], Meta(max_length=500)] | None = None
    status: Status | None = None


class _Front(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The front matter; without a model an agent runs on the one of the configuration."""

    name: Line
    description: str = ""
    model: str = ""
    slug: str = ""
    tool_permissions: list[str] = []
    status: Status = "enabled"
    created_at: str = ""


def slug_of(name: str) -> str:
    """A name's slug: `Café Bot 2.0` is `cafe-bot-2-0`; empty where nothing of it is left."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:SLUG_MAX].rstrip("-")


class Agents:
    """The agents of all users of one data directory; the daemon is the files' only program.

    Args:
        data: the data directory.
        clock: for the times of an agent.
        seeds: directory of agents that came with the daemon; need not be there.
    """

    def __init__(self, data: str, clock: Clock, seeds: str = "") -> None:
        self._data, self._clock, self._seeds = data, clock, seeds
        self._synced: set[str] = set()

    def directory(self, user: str) -> str:
        """Where a user's agents lie."""
        return os.path.join(self._data, user, "agents")

    def listing(self, user: str) -> Listing:
        """All of a user's.

        Raises:
            StoreError: the directory cannot be read.
        """
        self._sync(user)
        directory = self.directory(user)
        found: list[Agent] = []
        problems: list[Problem] = []
        for file in _files(directory):
            path = os.path.join(directory, file)
            try:
                found.append(_read(path))
            except EdgedError as error:
                text = re.sub(rf"\A{re.escape(path)}:(\d+): ", r"line \1: ", str(error))
                problems.append(Problem(path, text.removeprefix(f"{path}: ")))
        return Listing(tuple(found), tuple(problems))

    def get(self, user: str, slug: str) -> Agent:
        """One of a user's.

        Raises:
            InvalidArgumentsError: it is no slug.
            NotFoundError: there is none of that slug.
            ConfigError: its file cannot be used.
        """
        self._sync(user)
        path = self._path(user, slug)
        if not os.path.lexists(path):
            raise NotFoundError(f"no agent {slug!r}: edged agents lists them")
        return _read(path)

    def create(self, user: str, asked: Creation) -> Agent:
        """Make one; on return it is on disk.

        Raises:
            InvalidArgumentsError: something is wrong with it.
            ExistsError: there is one of its slug, perhaps of a name that differs.
        """
        slug = slug_of(asked.name)
        if not slug:
            reason = "needs a letter a-z or a digit, of which its slug is made"
            raise InvalidArgumentsError([Fault("name", reason)])
        return self._add(user, slug, asked)

    def update(self, user: str, slug: str, change: Change) -> Agent:
        """Change one; its slug stays.

        Raises:
            NotFoundError, InvalidArgumentsError: as `get` and `create`.
        """
        before = self.get(user, slug)
        asked = {n: v for n, v in msgspec.structs.asdict(change).items() if v is not None}
        if "tool_permissions" in asked:
            asked["tool_permissions"] = tuple(asked["tool_permissions"])
        after = _checked(msgspec.structs.replace(before, **asked))
        if asked.keys() == {"status"}:
            path = self._path(user, slug)
            data = _switched(_taken(path)[0], after.status)
            if _is(after, data, path):
                return self._put(path, data)
        return self._write(user, after)

    def delete(self, user: str, slug: str) -> None:
        """Remove one; the file, whatever is in it.

        Raises:
            NotFoundError, InvalidArgumentsError: as `get`.
            StoreError: it cannot be removed.
        """
        self._sync(user)
        path = self._path(user, slug)
        try:
            os.unlink(path)
            sync_directory(os.path.dirname(path))
        except FileNotFoundError:
            raise NotFoundError(f"no agent {slug!r}: edged agents lists them") from None
        except OSError as error:
            raise failed("remove", path, error) from error

    def take(self, user: str, content: str) -> Agent:
        """Make one of a Markdown file's text.

        Raises:
            InvalidArgumentsError: it is none, with the line.
            ExistsError: as `create`.
        """
        if not content.strip():
            raise InvalidArgumentsError([Fault("content", "is empty: give a Markdown file")])
        try:
            front, body = _parsed(content.encode(), "content")
        except ConfigError as error:
            raise InvalidArgumentsError([Fault("", str(error))]) from None
        slug = front.slug or slug_of(front.name)
        if not slug:
            reason = f"{front.name[:80]!r} has no letter a-z and no digit: write a `slug` too"
            raise InvalidArgumentsError([Fault("name", reason)])
        if re.fullmatch(SLUG, slug) is None:
            reason = "must be a-z, 0-9 and -, 64 at most, beginning and ending with no -"
            raise InvalidArgumentsError([Fault("slug", reason)])
        asked = Creation(
            front.name,
            body,
            front.model,
            front.description,
            front.tool_permissions,
            front.status,
        )
        return self._add(user, slug, asked)

    def _add(self, user: str, slug: str, asked: Creation) -> Agent:
        self._sync(user)
        path = self._path(user, slug)
        if os.path.lexists(path):
            there = next((a.name for a in self.listing(user).agents if a.slug == slug), "")
            named = f", named {there!r}," if there and there != asked.name else ""
            raise ExistsError(f"there is an agent {slug!r}{named} already: choose another name")
        if len(_files(self.directory(user))) >= AGENTS_MAX:
            raise ExistsError(f"there are {AGENTS_MAX} agents: remove some first")
        now = iso(self._clock.now())
        agent = Agent(
            slug,
            asked.name,
            asked.description,
            asked.system_prompt,
            asked.model,
            tuple(asked.tool_permissions),
            asked.status,
            now,
            now,
        )
        return self._write(user, _checked(agent))

    def _write(self, user: str, agent: Agent) -> Agent:
        make_directory(self.directory(user), 0o750)
        return self._put(self._path(user, agent.slug), written(agent))

    def _put(self, path: str, data: bytes) -> Agent:
        now = self._clock.now()
        write_atomic(path, data, 0o640)
        # The file's time is the agent's, so that a change by hand is one too.
        os.utime(path, (now, now))
        return _read(path)

    def _path(self, user: str, slug: str) -> str:
        if re.fullmatch(SLUG, slug) is None:
            reason = f"{slug[:80]!r} is none: a-z, 0-9 and -, 64 at most"
            raise InvalidArgumentsError([Fault("slug", reason)])
        return os.path.join(self.directory(user), f"{slug}.md")

    def _sync(self, user: str) -> None:
        """Give a user the agents that came with the daemon: new ones, and newer ones.

        What a person changed or removed stays as it is.
        """
        if user in self._synced or not os.path.isdir(self._seeds):
            return
        self._synced.add(user)
        directory = self.directory(user)
        record = os.path.join(directory, SEEDS)
        try:
            with open(record, "rb") as file:
                given = msgspec.json.decode(file.read(), type=dict[str, str])
        except (OSError, msgspec.DecodeError):
            given = {}
        fresh = dict(given)
        try:
            for name in _files(self._seeds):
                with open(os.path.join(self._seeds, name), "rb") as file:
                    data = file.read()
                digest, path = hashlib.sha256(data).hexdigest(), os.path.join(directory, name)
                there = _digest(path)
                if name in given:
                    is_theirs = there != given[name]
                else:
                    # The same was given before the power went, and not noted yet.
                    is_theirs = os.path.lexists(path) and there != digest
                if not is_theirs and given.get(name) != digest:
                    make_directory(directory, 0o750)
                    write_atomic(path, data, 0o640)
                    fresh[name] = digest
            if fresh != given:
                write_atomic(record, msgspec.json.encode(fresh))
        except (OSError, StoreError) as error:
            # On a disk that is full or read-only there are those that there are.
            log.warning(f"the agents that came with edged: {error}")


def doubts(agent: Agent, names: Collection[str]) -> tuple[str, ...]:
    """What an agent may call that is not there, in words.

    Tools of MCP servers are there while their server is: of those nothing is said.

    Args:
        agent: whose `tool_permissions` are looked at.
        names: of all tools.
    """
    found = []
    for one in agent.tool_permissions:
        if one == EVERY or one.startswith("mcp_"):
            continue
        if one.endswith("*"):
            if not any(name.startswith(one[:-1]) for name in names):
                found.append(f"tool_permissions: no tool's name begins with {one[:-1]!r}")
        elif one not in names:
            guess = yamlio.nearest(one, names)
            hint = f"did you mean {guess!r}?" if guess else "edged tools --all lists them"
            found.append(f"tool_permissions: there is no tool {one!r}: {hint}")
    return tuple(found)


def _digest(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return ""


def _files(directory: str) -> list[str]:
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise failed("read", directory, error) from error
    return sorted(name for name in names if name.endswith(".md") and not name.startswith("."))


def _read(path: str) -> Agent:
    """The agent of a file.

    Raises:
        ConfigError: with the line.
    """
    return _agent(*_taken(path), path)


def _taken(path: str) -> tuple[bytes, float]:
    """What is in an agent's file, and when it was changed.

    Raises:
        ConfigError: it is none, or cannot be read.
    """
    try:
        # Never a link that somebody laid to another file, nor what one would wait for.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(fd, "rb") as file:
            facts = os.fstat(fd)
            if not stat.S_ISREG(facts.st_mode):
                raise ConfigError("is no file", file=path)
            data = file.read(frontmatter.FILE_MAX + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=path) from None
    return data, facts.st_mtime


def _agent(data: bytes, time: float, path: str) -> Agent:
    slug = os.path.basename(path)[: -len(".md")]
    if re.fullmatch(SLUG, slug) is None:
        raise ConfigError("rename it: a-z, 0-9 and -, then .md", file=path)
    front, body = _parsed(data, path)
    if front.slug not in ("", slug):
        reason = f"is {front.slug!r} and the file {slug}.md: make them the same"
        raise ConfigError(reason, file=path, key="slug")
    changed = iso(time)
    agent = Agent(
        slug,
        front.name,
        front.description,
        body,
        front.model,
        tuple(front.tool_permissions),
        front.status,
        front.created_at or changed,
        changed,
    )
    try:
        return _checked(agent)
    except InvalidArgumentsError as error:
        raise ConfigError(str(error), file=path) from None


def _switched(data: bytes, status: Status) -> bytes:
    """An agent's file with another status in the one line that says it; all else is kept."""
    lines = re.findall(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z", data)
    fence = frontmatter.split(data, "").body_first_line - 2
    for at, line in enumerate(lines[:fence]):
        found = re.match(rb"(status[ \t]*:[ \t]*)[^\s#]+", line)
        if found is not None:
            lines[at] = found[1] + status.encode() + line[found.end() :]
            break
    else:
        end = lines[0].lstrip(b"\xef\xbb\xbf").lstrip(b"- \t")
        lines.insert(fence, b"status: " + status.encode() + end)
    return b"".join(lines)


def _is(agent: Agent, data: bytes, path: str) -> bool:
    """Whether a file's text is that agent, whenever it was changed."""
    try:
        found = _agent(data, 0.0, path)
    except ConfigError:
        return False
    # A file may leave out when it was made.
    times = {"created_at": agent.created_at, "updated_at": agent.updated_at}
    return msgspec.structs.replace(found, **times) == agent


def _parsed(data: bytes, file: str) -> tuple[_Front, str]:
    parts = frontmatter.split(data, file)
    document = yamlio.load(parts.yaml_text, file, first_line=parts.yaml_first_line)
    front = yamlio.convert(document, _Front, file)
    body = _prompt(data.decode("utf-8-sig"), parts.body_first_line)
    if not body.strip():
        reason = "the prompt below the front matter is empty: write what the agent is to do"
        raise ConfigError(reason, file=file, line=parts.body_first_line)
    return front, body


def _prompt(text: str, first_line: int) -> str:
    """What lies below the front matter, to the byte.

    The empty line under the fence and the last line's end are the file's, not the prompt's.
    """
    line = re.compile(r"[^\r\n]*(\r\n|\r|\n|\Z)")
    at, end = 0, ""
    for _ in range(first_line - 1):
        found = line.match(text, at)
        assert found is not None  # noqa: S101  it matches everywhere
        at, end = found.end(), found[1]
    return text[at:].removeprefix(end).removesuffix(end)


def _checked(agent: Agent) -> Agent:
    faults = [
        Fault(
            f"tool_permissions[{index}]", f"{name[:80]!r} is no tool's name, nor one with * last"
        )
        for index, name in enumerate(agent.tool_permissions)
        if re.fullmatch(_TOOL, name) is None
    ]
    faults += [
        Fault(field, "must be one line of text")
        for field in ("name", "model", "description")
        if re.search(_NO_LINE, getattr(agent, field))
    ]
    faults += [
        Fault(field, "is required")
        for field in ("name", "system_prompt")
        if not getattr(agent, field).strip()
    ]
    if faults:
        raise InvalidArgumentsError(faults)
    return agent


def written(agent: Agent) -> bytes:
    """An agent's file; reading it gives the same agent."""
    facts: dict[str, Any] = {
        "name": agent.name,
        "description": agent.description,
        "model": agent.model,
        "slug": agent.slug,
        "tool_permissions": agent.tool_permissions,
        "status": agent.status,
        "created_at": agent.created_at,
    }
    # JSON is YAML, and says of each value whether it is text.
    lines = [f"{name}: {msgspec.json.encode(value).decode()}" for name, value in facts.items()]
    return "\n".join(["---", *lines, "---", "", agent.system_prompt, ""]).encode()
