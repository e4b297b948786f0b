"""Brings the seed's tools into the data directory, by version.

Laws: at any moment, whatever breaks, a tool is the old one or the new one, never half of one; a
replaced copy is kept beside (`.replaced/<name>-v<version>`, one for each tool); links in a seed
are refused, links in the target are left alone and never followed; one sync at a time holds the
lock. Tools are keyed by directory name. Blocking calls.

How a tool is replaced: it is copied to `.staging-<name>-<pid>` and flushed to the disk, renamed
to `.swap-<name>-<its own inode>`, and exchanged with the old one in one step of the kernel. A
directory takes its inode along, so a `.swap-` directory found later tells which of the two it
is. Where the file system cannot exchange, the old one waits as `.swap-<name>-0`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from typing import Literal

import msgspec

from edged.errors import BusyError, ConfigError, StoreError
from edged.toolmd.discover import TOOL_FILE, Cache, Entry, Problem, read_inside, scan
from edged.toolmd.frontmatter import FILE_MAX, split
from edged.yamlio import load

DIFFERS = "same version, other content: raise the version in the seed to replace it"

Kind = Literal["add", "update", "keep", "differs", "foreign", "refused"]
Step = Callable[[str], None]
"""Called with a name before each change of the file system; tests fail or stop there."""

Exchange = Callable[[str, str], bool]
"""Exchanges two paths in one step; False where the file system cannot."""

LOCK_FILE = ".sync.lock"
REPLACED = ".replaced"
_STAGING = ".staging-"
_SWAP = ".swap-"
_IGNORED = "__pycache__"
_CHUNK = 1 << 20


class Action(msgspec.Struct, frozen=True):
    """What is to be done about one tool directory.

    Attributes:
        kind: `keep` the target (newer, or the same), `differs` (kept too: the same version with
            other content), `foreign` (not of the seed), `refused` (the seed's cannot be used).
        seed_version: None where there is no such tool; 0 is a tool without a version.
        target_version: likewise.
        reason: for `foreign` and `refused`.
    """

    kind: Kind
    name: str
    seed_version: int | None = None
    target_version: int | None = None
    reason: str = ""


class Failure(msgspec.Struct, frozen=True):
    """A tool that could not be copied, and still is what it was."""

    name: str
    reason: str


class Report(msgspec.Struct, frozen=True):
    """The outcome of one sync: every action of the plan, and which of them failed."""

    actions: tuple[Action, ...]
    failed: tuple[Failure, ...] = ()


def plan(seed: str, target: str, cache: Cache, now: float) -> list[Action]:
    """What a sync would do, sorted by name; changes nothing.

    Args:
        seed: directory with the tools that came with the daemon.
        target: `DATA_PATH/tools`; need not exist yet.
        cache: what is known of both; brought up to date.
        now: wall time, seconds since 1970.
    """
    seeds = _by_directory(seed, cache, now)
    targets = _by_directory(target, cache, now)
    actions = [_action(name, one, target, targets.get(name)) for name, one in seeds.items()]
    actions += [
        Action("foreign", name, None, _version(entry), "not one of the seed's tools")
        for name, entry in targets.items()
        if name not in seeds
    ]
    return sorted(actions, key=lambda action: action.name)


def _by_directory(root: str, cache: Cache, now: float) -> dict[str, Entry]:
    entries = scan(root, "global", cache, now)
    return {os.path.basename(entry.directory): entry for entry in entries}


def _action(name: str, source: Entry, target: str, present: Entry | None) -> Action:
    if source.problem is not None:
        problem = source.problem
        return Action("refused", name, None, None, f"{problem.reason}: {problem.remedy}")
    try:
        items = _seed_items(source.directory)
    except ConfigError as error:
        return Action("refused", name, None, None, str(error))
    version = _version(source)
    path = f"{target}/{name}"
    if not os.path.lexists(path):
        return Action("add", name, version)
    if present is None or os.path.islink(path):
        return Action("foreign", name, version, None, "a link or file of that name is in the way")
    old = _version(present)
    if version > old:
        return Action("update", name, version, old)
    if version == old and _differs(source.directory, items, path):
        return Action("differs", name, version, old, DIFFERS)
    return Action("keep", name, version, old)


def _version(entry: Entry) -> int:
    if entry.manifest is not None:
        return entry.manifest.version
    return version_of(entry.directory)


def version_of(directory: str) -> int:
    """The version in a TOOL.md, however broken the rest of it is; 0 when none can be read."""
    data = read_inside(directory, TOOL_FILE, FILE_MAX)
    if isinstance(data, Problem):
        return 0
    try:
        front = split(data, TOOL_FILE)
        value = load(front.yaml_text, TOOL_FILE).value
        version = value.get("version") if isinstance(value, dict) else None
        return version if isinstance(version, int) and version >= 0 else 0
    except ConfigError:
        match = re.search(rb"(?m)^version:[ \t]*([0-9]{1,9})[ \t]*\r?$", data)
        return int(match[1]) if match else 0


class _Item(msgspec.Struct, frozen=True):
    """One file or directory below a tool's directory; `other` is a link or special file."""

    path: str
    kind: Literal["dir", "file", "other"]
    size: int = 0
    run: bool = False


def _items(directory: str) -> list[_Item]:
    """All below `directory`, parents first, by path; links are not followed."""
    found: list[_Item] = []
    waiting = [""]
    while waiting:
        below = waiting.pop()
        with os.scandir(f"{directory}/{below}") as entries:
            for entry in entries:
                if entry.name == _IGNORED:
                    continue
                path = f"{below}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    found.append(_Item(path, "dir"))
                    waiting.append(f"{path}/")
                elif entry.is_file(follow_symlinks=False):
                    info = entry.stat(follow_symlinks=False)
                    run = bool(info.st_mode & stat.S_IXUSR)
                    found.append(_Item(path, "file", info.st_size, run))
                else:
                    found.append(_Item(path, "other"))
    return sorted(found, key=lambda item: item.path)


def _seed_items(directory: str) -> list[_Item]:
    """Like `_items`.

    Raises:
        ConfigError: there is a link or a special file, or something cannot be read.
    """
    try:
        items = _items(directory)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(error.filename)) from error
    for item in items:
        if item.kind == "other":
            path = f"{directory}/{item.path}"
            raise ConfigError("is a link or a special file: put a plain file there", file=path)
    return items


def _differs(source: str, items: list[_Item], path: str) -> bool:
    """Whether the target's copy has other files, run bits or content."""
    try:
        if _items(path) != items:
            return True
        files = [item.path for item in items if item.kind == "file"]
        return any(_content(f"{source}/{one}") != _content(f"{path}/{one}") for one in files)
    except OSError:
        # What cannot be read cannot be the seed's copy as it was put there.
        return True


def _content(path: str) -> bytes:
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        return file.read()


def _no_step(_name: str) -> None:
    """The step of a sync that nobody watches."""


def rename_exchange(one: str, other: str) -> bool:
    """Exchanges two paths of one file system in one step.

    Returns:
        False where the C library, the kernel or the file system cannot.

    Raises:
        OSError: any other failure; nothing was changed.

    Source: renameat2(2), RENAME_EXCHANGE.
    """
    import ctypes  # noqa: PLC0415 - only an update needs it

    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return False
    at_fdcwd, exchange = -100, 2
    if call(at_fdcwd, os.fsencode(one), at_fdcwd, os.fsencode(other), exchange) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
        return False
    raise OSError(code, os.strerror(code), one)


def apply(
    seed: str,
    target: str,
    cache: Cache,
    now: float,
    *,
    step: Step = _no_step,
    exchange: Exchange = rename_exchange,
) -> Report:
    """Does what `plan` says, after healing what a crash left.

    A tool that cannot be copied stays what it was and is reported; the others go on.

    Raises:
        BusyError: another sync holds the lock.
        StoreError: the target directory cannot be used.
    """
    run = _Run(seed, target, step, exchange)
    try:
        os.makedirs(target, exist_ok=True)
        with _locked(target):
            run.heal()
            actions = plan(seed, target, cache, now)
            changes = [one.name for one in actions if one.kind in ("add", "update")]
            failed = [failure for name in changes if (failure := run.attempt(name))]
    except BlockingIOError:
        raise BusyError(f"{target}: another sync is running: wait for it") from None
    except OSError as error:
        raise StoreError(
            f"{error.filename or target}: {error.strerror}: nothing is lost"
        ) from error
    return Report(tuple(actions), tuple(failed))


@contextlib.contextmanager
def _locked(target: str) -> Iterator[None]:
    """Holds the lock of a target directory; BlockingIOError when another process does."""
    import fcntl  # noqa: PLC0415 - only a sync needs it

    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(f"{target}/{LOCK_FILE}", flags, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        # Said, not left to the close: a child before its exec has the descriptor too.
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


class _Run:
    """The changes of one sync; the lock is held."""

    def __init__(self, seed: str, target: str, step: Step, exchange: Exchange) -> None:
        self.seed, self.target, self.step, self.exchange = seed, target, step, exchange

    def attempt(self, name: str) -> Failure | None:
        """Installs one tool, or says why that failed; the tool is whole either way."""
        try:
            self._install(name)
        except (OSError, ConfigError) as error:
            # If this fails too, the next run heals.
            with contextlib.suppress(OSError):
                self.heal()
            reason = error.strerror if isinstance(error, OSError) else str(error)
            return Failure(name, f"{reason}: mend that and sync again")
        return None

    def _install(self, name: str) -> None:
        """Puts the seed's copy in place of what is there, if anything."""
        staging = f"{self.target}/{_STAGING}{name}-{os.getpid()}"
        final = f"{self.target}/{name}"
        self._copy(f"{self.seed}/{name}", staging)
        if not os.path.lexists(final):
            self._rename("move new in", staging, final)
            return
        swap = f"{self.target}/{_SWAP}{name}-{os.lstat(staging).st_ino}"
        self._rename("mark", staging, swap)
        self.step("exchange")
        if not self.exchange(swap, final):
            waiting = f"{self.target}/{_SWAP}{name}-0"
            self._rename("move old away", final, waiting)
            self._rename("move new in", swap, final)
            swap = waiting
        _flush(self.target)
        self._keep(name, swap)

    def _rename(self, what: str, old: str, new: str) -> None:
        self.step(what)
        os.rename(old, new)
        _flush(self.target)

    def _remove(self, what: str, path: str) -> None:
        """Removes a tree, or a link itself."""
        import shutil  # noqa: PLC0415 - costs an import, and only an update removes trees

        self.step(what)
        if os.path.islink(path) or not os.path.isdir(path):
            os.unlink(path)
        else:
            shutil.rmtree(path)

    def _copy(self, source: str, staging: str) -> None:
        """Copies a seed's directory, with run bits, down to the disk."""
        items = _seed_items(source)
        directories = [
            staging,
            *(f"{staging}/{item.path}" for item in items if item.kind == "dir"),
        ]
        for directory in directories:
            self.step(f"make {directory}")
            os.mkdir(directory)
            os.chmod(directory, 0o755)  # noqa: S103 - sandboxed tools of another user read it
        for item in items:
            if item.kind == "file":
                self.step(f"copy {item.path}")
                _copy_file(f"{source}/{item.path}", f"{staging}/{item.path}", run=item.run)
        for directory in reversed(directories):
            self.step(f"flush {directory}")
            _flush(directory)

    def _keep(self, name: str, old: str) -> None:
        """Puts a replaced copy beside, in place of the one that was kept before."""
        shelf = f"{self.target}/{REPLACED}"
        self.step("make shelf")
        with contextlib.suppress(FileExistsError):
            os.mkdir(shelf)
        if not stat.S_ISDIR(os.lstat(shelf).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "is not a directory", shelf)
        for former in os.listdir(shelf):
            if re.fullmatch(rf"{re.escape(name)}-v[0-9]+", former):
                self._remove("remove former", f"{shelf}/{former}")
        self._rename("keep old", old, f"{shelf}/{name}-v{version_of(old)}")
        _flush(shelf)

    def heal(self) -> None:
        """Brings the target back to whole tools after a sync that did not end."""
        for found in sorted(os.listdir(self.target)):
            path = f"{self.target}/{found}"
            if found.startswith(_STAGING):
                self._remove("remove staging", path)
            elif found.startswith(_SWAP):
                name, _, inode = found.removeprefix(_SWAP).rpartition("-")
                if str(os.lstat(path).st_ino) == inode:
                    self._remove("remove unused", path)
                elif os.path.lexists(f"{self.target}/{name}"):
                    self._keep(name, path)
                else:
                    self._rename("move old back", path, f"{self.target}/{name}")


def _copy_file(source: str, path: str, *, run: bool) -> None:
    reading = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(reading, "rb") as old, open(os.open(path, flags, 0o600), "wb") as new:
        while chunk := old.read(_CHUNK):
            new.write(chunk)
        new.flush()
        os.fchmod(new.fileno(), 0o755 if run else 0o644)
        os.fsync(new.fileno())


def _flush(directory: str) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
