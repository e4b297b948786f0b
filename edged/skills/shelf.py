"""One directory of skills: what is there, and how a skill gets in and out.

Laws: at any moment, whatever breaks, a skill is the old one or the new one, never half of
one; what was there before is kept beside (`.replaced/<name>`, one of each); what a person
changed is not replaced unless that is asked for. One caller at a time changes a shelf; the
daemon owns its data directory. Blocking calls.

How a skill is replaced: it is staged and flushed in `.staging-<name>-<number>`, renamed to
`.swap-<name>@<its inode>` and exchanged with the old one in one step of the kernel. A
directory takes its inode along, so a `.swap-` directory that is found later tells which of
the two it is. Where the file system cannot exchange, the old one waits as `.swap-<name>@0`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator

import msgspec

from edged import log
from edged.errors import ConfigError, ExistsError, NotFoundError, StoreError
from edged.sandbox.account import Account
from edged.skills import document, names
from edged.skills.archive import is_ignored
from edged.skills.stage import LOCK, Lock, Stage
from edged.store import failed, make_directory, sync_directory
from edged.toolmd.discover import Problem, read_inside
from edged.toolmd.frontmatter import FILE_MAX
from edged.toolmd.sync import rename_exchange

REPLACED = ".replaced"
_STAGING = ".staging-"
_SWAP = ".swap-"
_CHUNK = 1 << 20

ENTRIES_MAX = 2_000
"""Directories of one shelf that are looked at."""

WALKED_MAX = 10_000
"""Files of one skill."""

LOCK_MAX = 2 << 20

Step = Callable[[str], None]
"""Called with a name before each change of the file system; tests fail or stop there."""


class Entry(msgspec.Struct, frozen=True):
    """One skill, or what should be one.

    Attributes:
        name: of its directory.
        facts: what its SKILL.md says; None where it cannot be loaded.
        problem: why it cannot; empty where it can.
        lock: where it came from; None where a person put it there.
        path: of its directory.
    """

    name: str
    facts: document.Facts | None
    problem: str
    lock: Lock | None
    path: str


def no_step(_name: str) -> None:
    """The step of a change that nobody watches."""


class Shelf:
    """The skills of one directory."""

    def __init__(
        self,
        path: str,
        account: Account | None = None,
        *,
        step: Step = no_step,
        exchange: Callable[[str, str], bool] = rename_exchange,
    ) -> None:
        """A shelf; nothing is made or read yet.

        Args:
            path: absolute.
            account: whom its files belong to; None: the daemon's own.
            step: for tests.
            exchange: exchanges two paths in one step; False where it cannot be done.
        """
        self.path = path
        self._account = account
        self._step = step
        self._exchange = exchange
        self._known: dict[str, tuple[tuple[int, ...], Entry]] = {}
        self._number = 0

    # What is there ------------------------------------------------------------------------

    def entries(self) -> list[Entry]:
        """All skills by name, broken ones too; looks again only at what changed."""
        found: dict[str, tuple[tuple[int, ...], Entry]] = {}
        for name in self._names():
            path = os.path.join(self.path, name)
            mark = _mark(path)
            known = self._known.get(name)
            if known is None or known[0] != mark or known[1].problem:
                known = (mark, self._look(name, path))
            found[name] = known
        self._known = found
        return [entry for _, entry in found.values()]

    def _names(self) -> list[str]:
        try:
            with os.scandir(self.path) as entries:
                names_ = sorted(
                    e.name for e in entries if not e.name.startswith(".") and not _is_file(e)
                )
        except FileNotFoundError:
            return []
        except OSError as error:
            raise failed("read", self.path, error) from error
        return names_[:ENTRIES_MAX]

    def _look(self, name: str, path: str) -> Entry:
        if not name.isprintable() or len(name) > names.SLUG_MAX:
            return Entry(name, None, "its directory has no name that a skill may have", None, path)
        if os.path.islink(path):
            real = os.path.realpath(path)
            if not os.path.isdir(real):
                return Entry(name, None, "is a link that leads nowhere", None, path)
            if os.path.dirname(real) != os.path.realpath(self.path):
                reason = "is a link that leads out: put the directory itself there"
                return Entry(name, None, reason, None, path)
            path = real
        facts, problem = read_skill(path, name)
        return Entry(name, facts, problem, read_lock(path), path)

    def find(self, name: str) -> Entry:
        """One skill by name.

        Raises:
            NotFoundError: there is none.
        """
        for entry in self.entries():
            if entry.name == name:
                return entry
        raise NotFoundError(f"no skill named {name[:100]!r}")

    # Changing -----------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make the directory where it is missing, and mend what a crash left.

        Raises:
            StoreError: it cannot be used.
        """
        make_directory(self.path, 0o755)
        try:
            if os.path.islink(self.path):
                raise StoreError(f"{self.path} is a link: put a directory there")
            self._own(self.path)
            self._heal()
        except StoreError:
            raise
        except OSError as error:
            raise failed("use", self.path, error) from error

    def stage(self, name: str) -> Stage:
        """A fresh directory for a skill on its way in.

        Raises:
            StoreError: it cannot be made.
        """
        self._number += 1
        path = os.path.join(self.path, f"{_STAGING}{name}-{os.getpid()}-{self._number}")
        try:
            self._step("make stage")
            return Stage(path)
        except OSError as error:
            raise failed("make", path, error) from error

    def drop(self, stage: Stage) -> None:
        """Forget what was staged."""
        shutil.rmtree(stage.path, ignore_errors=True)

    def check(self, name: str, *, force: bool) -> None:
        """Refuse to replace what is there.

        Raises:
            ExistsError: something is, and `force` is not given.
            StoreError: no skill is in the way, but something else.
        """
        path = os.path.join(self.path, name)
        clash = next(
            (n for n in self._names() if names.key(n) == names.key(name) and n != name), ""
        )
        if clash:
            raise ExistsError(f"{clash!r} differs by case alone: remove it first")
        if not os.path.lexists(path):
            return
        if os.path.islink(path) or not os.path.isdir(path):
            raise StoreError(f"{path} is no directory: move it away")
        if force:
            return
        lock = read_lock(path)
        if lock is None:
            raise ExistsError(
                f"{name} is there, and not from a registry: force replaces it and keeps it aside"
            )
        changes = changes_of(path, lock)
        if changes:
            raise ExistsError(
                f"{name} was changed here ({_few(changes)}): force replaces it and keeps "
                "the changed one aside"
            )

    def place(self, name: str, stage: Stage, lock: Lock, *, force: bool) -> None:
        """Put a staged skill in, in place of the one that is there.

        Args:
            name: of its directory.
            stage: complete.
            lock: to be kept with it.
            force: also in place of what a person changed, looked at at the last moment.

        Raises:
            ExistsError: as `check`.
            StoreError: it was not done, and what was there is there.
        """
        final = os.path.join(self.path, name)
        try:
            self._step("seal")
            stage.seal(lock)
            self._own_tree(stage.path)
            self._step("check")
            self.check(name, force=force)
            if not os.path.lexists(final):
                self._rename("move in", stage.path, final)
                return
            swap = os.path.join(self.path, f"{_SWAP}{name}@{os.stat(stage.path).st_ino}")
            self._rename("prepare swap", stage.path, swap)
            self._step("exchange")
            if not self._exchange(swap, final):
                waiting = os.path.join(self.path, f"{_SWAP}{name}@0")
                self._rename("move old away", final, waiting)
                try:
                    self._rename("move new in", swap, final)
                except OSError:
                    os.rename(waiting, final)
                    raise
                swap = waiting
            sync_directory(self.path)
        except (ExistsError, StoreError):
            raise
        except OSError as error:
            raise failed("install into", final, error) from error
        try:
            self._keep(name, swap)
        except OSError as error:
            # The new one is in; the next start puts the old one aside.
            log.warning(f"{failed('keep', swap, error)}")

    def remove(self, name: str, *, force: bool) -> None:
        """Take a skill out; it is kept aside until the next of its name is.

        Raises:
            NotFoundError: there is none.
            ExistsError: a person changed it, and `force` is not given.
            StoreError: it was not done.
        """
        path = os.path.join(self.path, name)
        if name not in self._names():
            raise NotFoundError(f"no skill named {name[:100]!r}")
        try:
            if os.path.islink(path):
                self._step("unlink")
                os.unlink(path)
                return
            lock = read_lock(path)
            changes = changes_of(path, lock) if lock is not None else ["it is no registry's"]
            if changes and not force:
                raise ExistsError(
                    f"{name} was made or changed here ({_few(changes)}): force removes it"
                )
            self._keep(name, path)
        except OSError as error:
            if isinstance(error, ExistsError):
                raise
            raise failed("remove", path, error) from error

    def kept(self, name: str) -> Lock | None:
        """Where the skill of that name came from that was put aside."""
        return read_lock(os.path.join(self.path, REPLACED, name))

    def _rename(self, what: str, old: str, new: str) -> None:
        self._step(what)
        os.rename(old, new)
        sync_directory(self.path)

    def _keep(self, name: str, old: str) -> None:
        shelf = os.path.join(self.path, REPLACED)
        self._step("make shelf")
        if not os.path.isdir(shelf):
            os.mkdir(shelf, 0o755)
            self._own(shelf)
        if os.path.islink(shelf):
            raise StoreError(f"{shelf} is a link: put a directory there")
        aside = os.path.join(shelf, name)
        if os.path.lexists(aside):
            self._step("remove former")
            _remove(aside)
        self._rename("keep old", old, aside)
        sync_directory(shelf)

    def _heal(self) -> None:
        """Bring the directory back to whole skills after a change that did not end."""
        for found in sorted(os.listdir(self.path)):
            path = os.path.join(self.path, found)
            if found.startswith(_STAGING):
                self._step("remove stage")
                _remove(path)
            elif found.startswith(_SWAP):
                name, _, inode = found.removeprefix(_SWAP).rpartition("@")
                if str(os.lstat(path).st_ino) == inode:
                    self._step("remove unused")
                    _remove(path)
                elif os.path.lexists(os.path.join(self.path, name)):
                    self._keep(name, path)
                else:
                    self._rename("move old back", path, os.path.join(self.path, name))

    def _own(self, path: str) -> None:
        if self._account is not None and os.geteuid() == 0:
            os.chown(path, self._account.uid, self._account.gid, follow_symlinks=False)

    def _own_tree(self, path: str) -> None:
        if self._account is None or os.geteuid() != 0:
            return
        for directory, _, files in os.walk(path, topdown=False):
            for one in files:
                self._own(os.path.join(directory, one))
            self._own(directory)


def read_skill(path: str, name: str) -> tuple[document.Facts | None, str]:
    """The SKILL.md of a directory, or why it cannot be loaded."""
    file = next((f for f in document.FILES if os.path.lexists(os.path.join(path, f))), "")
    if not file:
        return None, "no SKILL.md"
    data = read_inside(path, file, FILE_MAX)
    if isinstance(data, Problem):
        return None, f"{file}: {data.reason}"
    try:
        return document.read(data, name, file), ""
    except ConfigError as error:
        return None, str(error)


def read_lock(path: str) -> Lock | None:
    """The lock of a skill; None where there is none that can be read."""
    if not os.path.lexists(os.path.join(path, LOCK)):
        return None
    data = read_inside(path, LOCK, LOCK_MAX)
    if isinstance(data, Problem):
        return None
    try:
        return msgspec.json.decode(data, type=Lock)
    except msgspec.DecodeError:
        return None


def files_of(path: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """All below a directory but directories, by relative path; links are not followed.

    Raises:
        OSError: it cannot be read.
    """
    waiting, count = [""], 0
    while waiting:
        below = waiting.pop()
        with os.scandir(os.path.join(path, below)) as entries:
            for entry in sorted(entries, key=lambda e: e.name):
                inner = f"{below}{entry.name}"
                if is_ignored((entry.name,)):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(f"{inner}/")
                    continue
                count += 1
                if count > WALKED_MAX:
                    return
                yield inner, entry


def changes_of(path: str, lock: Lock) -> list[str]:
    """What differs from what was installed, by path; sorted.

    Raises:
        OSError: it cannot be read.
    """
    found = {}
    for inner, entry in files_of(path):
        found[inner] = hash_of(entry.path) if entry.is_file(follow_symlinks=False) else ""
    names_ = found.keys() | lock.files.keys()
    return sorted(one for one in names_ if found.get(one) != lock.files.get(one))


def hash_of(path: str) -> str:
    """SHA-256 of a file.

    Raises:
        OSError: it cannot be read.
    """
    digest = hashlib.sha256()
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        while piece := file.read(_CHUNK):
            digest.update(piece)
    return digest.hexdigest()


def _few(paths: list[str]) -> str:
    shown = ", ".join(names.line(one, 80) for one in paths[:3])
    return shown if len(paths) <= 3 else f"{shown} and {len(paths) - 3} more"


def _is_file(entry: os.DirEntry[str]) -> bool:
    return entry.is_file()


def _mark(path: str) -> tuple[int, ...]:
    """Changes when a skill is another, or its SKILL.md or lock is."""
    found: list[int] = []
    for one in (path, *(os.path.join(path, f) for f in (*document.FILES, LOCK))):
        try:
            info = os.lstat(one)
        except OSError:
            found.append(-1)
        else:
            found += (info.st_ino, info.st_mtime_ns, info.st_ctime_ns, info.st_size)
    return tuple(found)


def _remove(path: str) -> None:
    if os.path.islink(path) or not stat.S_ISDIR(os.lstat(path).st_mode):
        os.unlink(path)
    else:
        shutil.rmtree(path)
