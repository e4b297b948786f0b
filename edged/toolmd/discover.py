"""Finds the TOOL.md tools of a directory, and remembers what it read of them.

Laws: one broken directory never hides its siblings, it is listed with its reason; nothing is
read that lies outside of a tool's own directory, whatever links say; a tool whose three time
stamps (directory, TOOL.md, entry file) are as remembered costs three `stat` calls and no read.
Blocking calls; `scan_iter` lets an event loop slice them. Clocks are handed in.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

import edged
from edged.errors import ConfigError, StoreError
from edged.toolmd.frontmatter import FILE_MAX
from edged.toolmd.manifest import Manifest, parse
from edged.yamlio import UNKNOWN_KEY

Origin = Literal["global", "user"]
Key = tuple[int, ...]
"""Size, mtime, ctime (ns) and inode of one file; empty when it is not there."""

TOOL_FILE = "TOOL.md"
DIRECTORIES_MAX = 20_000
FILES_MAX = 1_000
RACY_NS = 2_000_000_000
"""A file changed this shortly before it was read may change again within one time stamp."""

ENTRY_FILES = {
    "typescript": ("index.ts", "index.mjs", "index.js"),
    "python": ("index.py",),
    "bash": ("index.sh",),
}
_FORMAT = 1


class Problem(msgspec.Struct, frozen=True, gc=False):
    """Why a directory is no usable tool.

    Attributes:
        line: 1-based, or 0 when the fault is not in a line.
        remedy: what to do; may be empty when `reason` says it.
    """

    file: str
    line: int
    reason: str
    remedy: str
    reason_code: str = "invalid"


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One tool directory.

    Attributes:
        name: the manifest's, or the directory's where the manifest cannot be read.
        directory: absolute.
        entry: name of the entry file, or empty.
        digest: changes with TOOL.md's content, with the entry file and with the names in the
            directory. `fingerprint` sees helper files too.
    """

    name: str
    directory: str
    origin: Origin
    manifest: Manifest | None = None
    entry: str = ""
    digest: str = ""
    problem: Problem | None = None


class _Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is remembered of one directory.

    Attributes:
        keys: of the directory, its TOOL.md and its entry file.
        trusted: whether equal keys prove equal content.
        content: hash of TOOL.md; empty when it was not read.
    """

    keys: tuple[Key, Key, Key]
    trusted: bool
    content: str
    entry: str
    digest: str
    manifest: Manifest | None
    problem: Problem | None


class _Stored(msgspec.Struct, array_like=True):
    version: str
    roots: dict[str, dict[str, _Record]]


class Cache:
    """Records by tools directory and name; one thread at a time.

    Attributes:
        changed: whether there is something to save.
    """

    def __init__(self) -> None:
        self.changed = False
        self._roots: dict[str, dict[str, _Record]] = {}

    @classmethod
    def load(cls, path: str) -> Cache:
        """The cache saved at `path`; empty when that is missing, broken or of another version."""
        cache = cls()
        try:
            with open(path, "rb") as file:
                stored = msgspec.msgpack.decode(file.read(), type=_Stored)
        except (OSError, msgspec.DecodeError):
            return cache
        if stored.version == _version():
            cache._roots = stored.roots
        return cache

    def save(self, path: str) -> None:
        """Writes the cache atomically; what a power cut spoils is read anew.

        Raises:
            StoreError: the file cannot be written.
        """
        temporary = f"{path}.{os.getpid()}.tmp"
        try:
            with open(temporary, "wb") as file:
                file.write(msgspec.msgpack.encode(_Stored(_version(), self._roots)))
            os.replace(temporary, path)
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}: the cache is not saved") from error
        self.changed = False

    def records(self, root: str) -> dict[str, _Record]:
        """What is remembered below one tools directory."""
        return self._roots.get(root, {})

    def replace(self, root: str, records: dict[str, _Record]) -> None:
        """Puts the outcome of a whole scan in place of what was remembered."""
        if records != self.records(root):
            self._roots[root] = records
            self.changed = True


def _version() -> str:
    return f"{_FORMAT} {edged.__version__}"


def scan(root: str, origin: Origin, cache: Cache, now: float) -> list[Entry]:
    """All tool directories of `root`, sorted by directory name.

    Args:
        root: absolute; one that does not exist has no tools.
        origin: whose tools these are.
        cache: what is known from before; brought up to date.
        now: wall time, seconds since 1970.
    """
    return list(scan_iter(root, origin, cache, now))


def scan_iter(root: str, origin: Origin, cache: Cache, now: float) -> Iterator[Entry]:
    """Like `scan`, one entry at a time, so that a caller may do other work in between.

    The cache is updated when the iterator has ended.
    """
    try:
        names, links = _directories(root)
    except FileNotFoundError:
        names, links = [], set()
    except OSError as error:
        reason = f"cannot be read: {error.strerror}, so that none of its tools is there"
        refused = _refused(root, origin, reason, "check its permissions")
        # Not a tool's name: it is about all of them.
        yield msgspec.structs.replace(refused, name=refused.directory)
        return
    old, fresh = cache.records(root), {}
    for name in names[:DIRECTORIES_MAX]:
        path = f"{root}/{name}"
        if name in links:
            yield _refused(path, origin, "is a link", "copy the directory here")
        elif not _is_utf8(name):
            yield _refused(path, origin, "its name is not UTF-8", "rename it")
        else:
            fresh[name] = record = _current(path, old.get(name), now)
            yield _entry(path, name, origin, record)
    if len(names) > DIRECTORIES_MAX:
        reason = f"only the first {DIRECTORIES_MAX} directories of {root} are read"
        yield _refused(f"{root}/{names[DIRECTORIES_MAX]}", origin, reason, "move tools elsewhere")
    cache.replace(root, fresh)


def again(entry: Entry, cache: Cache, now: float) -> Entry:
    """The same directory as it is now; as cheap as three `stat` calls when nothing changed."""
    root, name = os.path.split(entry.directory)
    records = cache.records(root)
    old = records.get(name)
    record = _current(entry.directory, old, now)
    if record is old:
        return entry
    cache.replace(root, {**records, name: record})
    return _entry(entry.directory, name, entry.origin, record)


def examine(directory: str, origin: Origin, now: float) -> Entry:
    """One tool directory, read without a cache."""
    directory = os.path.abspath(directory)
    if os.path.islink(directory):
        return _refused(directory, origin, "is a link", "copy the directory here")
    if not os.path.isdir(directory):
        return _refused(directory, origin, "is not a directory", "name a tool's directory")
    return _entry(directory, os.path.basename(directory), origin, _current(directory, None, now))


def _directories(root: str) -> tuple[list[str], set[str]]:
    """Sorted names of what may be tools, and those of them that are links."""
    names: list[str] = []
    links: set[str] = set()
    with os.scandir(root) as items:
        for item in items:
            if item.name[0] == "." or not item.is_dir():
                continue
            names.append(item.name)
            if item.is_symlink():
                links.add(item.name)
    names.sort()
    return names, links


def _is_utf8(name: str) -> bool:
    return name.isascii() or not any("\udc80" <= char <= "\udcff" for char in name)


def _refused(path: str, origin: Origin, reason: str, remedy: str) -> Entry:
    """An entry of which nothing is read; bytes that are no text are shown escaped."""
    shown = os.fsencode(path).decode("utf-8", "backslashreplace")
    problem = Problem(shown, 0, reason, remedy)
    return Entry(os.path.basename(shown), shown, origin, problem=problem)


def _entry(path: str, name: str, origin: Origin, record: _Record) -> Entry:
    manifest = record.manifest
    return Entry(
        manifest.name if manifest is not None else name,
        path,
        origin,
        manifest,
        record.entry,
        record.digest,
        record.problem,
    )


def _current(path: str, old: _Record | None, now: float) -> _Record:
    """What holds of a directory now: `old`, if nothing changed since."""
    if old is not None and old.trusted and _keys(path, old.entry) == old.keys:
        return old
    return _read(path, old, now)


def _key(path: str) -> Key:
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


def _keys(path: str, entry: str) -> tuple[Key, Key, Key]:
    return _key(path), _key(f"{path}/{TOOL_FILE}"), _key(f"{path}/{entry}") if entry else ()


def _read(path: str, old: _Record | None, now: float) -> _Record:
    """Reads a directory; parses TOOL.md only when its content is not the remembered one."""
    # Taken before the content is read, so that a change in between shows as a change later.
    before, tool_key, _ = _keys(path, "")
    content, manifest, entry = "", None, ""
    problem: Problem | None = None
    data = read_inside(path, TOOL_FILE, FILE_MAX)
    if isinstance(data, Problem):
        problem = data
    else:
        content = _hash(data)
        if old is not None and old.content == content:
            manifest, problem = old.manifest, old.problem
        if manifest is None and (old is None or old.content != content):
            manifest, problem = _parsed(path, data)
    if manifest is not None:
        found = entry_file(path, manifest.language)
        if isinstance(found, Problem):
            problem = _with_odd_keys(found, manifest, path)
        else:
            entry, problem = found, None
    keys = (before, tool_key, _key(f"{path}/{entry}") if entry else ())
    changed = max((time for key in keys for time in key[1:3]), default=0)
    # A problem of the file system may go away without a trace in these keys.
    settled = problem is None or (manifest is None and content != "")
    trusted = settled and changed < now * 1e9 - RACY_NS
    digest = _hash(f"{content} {entry} {keys}".encode())
    return _Record(keys, trusted, content, entry, digest, manifest, problem)


def _parsed(path: str, data: bytes) -> tuple[Manifest | None, Problem | None]:
    file = f"{path}/{TOOL_FILE}"
    try:
        return parse(data, file), None
    except ConfigError as error:
        faults = error.faults or (error,)
        texts = [f"{fault.key}: {fault.reason}" if fault.key else fault.reason for fault in faults]
        # The line of the first one is the problem's own.
        rest = zip(faults[1:], texts[1:], strict=True)
        told = [texts[0], *(f"line {fault.line}: {text}" for fault, text in rest)]
        remedy = f"mend it, then {_check_it(path)}"
        return None, Problem(file, faults[0].line, "; ".join(told), remedy)


def _with_odd_keys(problem: Problem, manifest: Manifest, path: str) -> Problem:
    """The lack of an entry file, with the unknown keys: one may be `language`, misspelt."""
    odd = [warning for warning in manifest.warnings if UNKNOWN_KEY in warning]
    if not odd:
        return problem
    reason = "; ".join((*odd, problem.reason))
    remedy = f"{problem.remedy}, then {_check_it(path)}"
    return msgspec.structs.replace(problem, reason=reason, remedy=remedy)


def _check_it(path: str) -> str:
    return f"run `edged check-tool {path}`"


def _hash(data: bytes) -> str:
    import hashlib  # noqa: PLC0415 - brings OpenSSL in, and only changed files are hashed

    return hashlib.blake2b(data, digest_size=16).hexdigest()


def entry_file(directory: str, language: str) -> str | Problem:
    """The entry file's name for a language, or why there is none."""
    names = ENTRY_FILES[language]
    for name in names:
        path = f"{directory}/{name}"
        if os.path.lexists(path):
            return _usable(directory, name) or name
    wanted = f"language: {language} wants {' or '.join(names)}"
    for other, candidates in ENTRY_FILES.items():
        for name in candidates:
            if os.path.lexists(f"{directory}/{name}"):
                remedy = f"write `language: {other}` or add {names[0]}"
                return Problem(f"{directory}/{TOOL_FILE}", 0, f"{wanted}; found {name}", remedy)
    return Problem(directory, 0, f"{wanted}; there is none", f"add {names[0]}")


def _usable(directory: str, name: str) -> Problem | None:
    """Why an existing entry file cannot be used."""
    fd = _open_inside(directory, name)
    if isinstance(fd, Problem):
        return fd
    os.close(fd)
    return None


def read_inside(directory: str, name: str, limit: int) -> bytes | Problem:
    """The content of a regular file in a tool's directory, or why it is not read.

    A link is followed only to a file below the same directory; the check is made on the opened
    file, so that nobody can exchange it in between.

    Args:
        directory: absolute; itself no link.
        name: of the file, in that directory.
        limit: bytes; a larger file is a problem.
    """
    fd = _open_inside(directory, name)
    if isinstance(fd, Problem):
        return fd
    path = f"{directory}/{name}"
    try:
        with open(fd, "rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        return Problem(path, 0, f"cannot be read: {error.strerror}", "check the disk")
    if len(data) > limit:
        return Problem(path, 0, f"larger than {limit >> 20} MiB", "move content to other files")
    return data


def _open_inside(directory: str, name: str) -> int | Problem:
    """Open a regular file for reading once it is known that it lies inside."""
    path = f"{directory}/{name}"
    parent, own = os.path.split(directory)
    home = os.path.join(os.path.realpath(parent), own, "")
    fd = -1
    try:
        # By `O_PATH` nothing happens to what a link names, be it a device or another's pipe.
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        inside = os.readlink(f"/proc/self/fd/{fd}").startswith(home)
        if inside and stat.S_ISREG(os.fstat(fd).st_mode):
            return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return Problem(path, 0, f"no {name}", f"add {name}")
    except OSError as error:
        return Problem(path, 0, f"cannot be read: {error.strerror}", "check its permissions")
    finally:
        if fd >= 0:
            os.close(fd)
    reason = "is not a regular file" if inside else "a link leads out of the tool's directory"
    return Problem(path, 0, reason, "put the file itself there")


def foreign(directory: str, keepers: frozenset[int]) -> str:
    """A path by which others than its keepers can change a tool; empty when there is none.

    Looks at all files of the tool up to the first fault, and at the directory above, in which
    another tool could take its place unless that directory is sticky. Links are not followed.

    Args:
        directory: of the tool, absolute.
        keepers: uids whose files these may be.
    """
    above = os.path.dirname(directory)
    waiting = [directory]
    try:
        info = os.stat(above)
        sticky = info.st_uid in keepers and info.st_mode & stat.S_ISVTX
        if not sticky and not _is_kept(info, keepers):
            return above
        if not _is_kept(os.lstat(directory), keepers):
            return directory
        while waiting:
            with os.scandir(waiting.pop()) as items:
                for item in items:
                    if not _is_kept(item.stat(follow_symlinks=False), keepers):
                        return item.path
                    if item.is_dir(follow_symlinks=False):
                        waiting.append(item.path)
    except OSError:
        return directory  # it changes at this moment
    return ""


def _is_kept(info: os.stat_result, keepers: frozenset[int]) -> bool:
    """Whether none but keepers can change a file or a directory; links cannot be changed."""
    writable = info.st_mode & 0o022 and not stat.S_ISLNK(info.st_mode)
    return info.st_uid in keepers and not writable


def fingerprint(directory: str) -> str:
    """A hash of names, sizes and change times of all files of a tool, helper files included.

    Costs one `stat` a file, and is meant for one tool at a time: before a prepared sandbox is
    used. Links are not followed. Empty where there are more than 1,000 files: no prepared
    sandbox is known to be of now.
    """
    found: list[tuple[Any, ...]] = []
    waiting = [directory]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as items:
                for item in items:
                    if len(found) == FILES_MAX:
                        return ""
                    info = item.stat(follow_symlinks=False)
                    found.append((item.path, info.st_size, info.st_mtime_ns, info.st_ctime_ns))
                    if item.is_dir(follow_symlinks=False):
                        waiting.append(item.path)
        except OSError as error:
            found.append((error.filename, error.errno))
    return _hash(repr(sorted(found, key=repr)).encode("utf-8", "surrogateescape"))
