"""Bringing seed tools into the data directory: versions, whole tools at every moment."""

import contextlib
import errno
import fcntl
import os
import pathlib
from collections.abc import Callable

import pytest

from edged.errors import BusyError, StoreError
from edged.toolmd.discover import Cache
from edged.toolmd.sync import (
    DIFFERS,
    Action,
    Exchange,
    Failure,
    Report,
    apply,
    plan,
    rename_exchange,
    version_of,
)

Path = pathlib.Path
LATER = 4_102_444_800.0
"""2100-01-01: long after every file of a test was written."""

Files = dict[str, str]


def tool(root: Path, name: str, version: int | None = 1, **files: str) -> Path:
    directory = root / name
    directory.mkdir(parents=True)
    line = "" if version is None else f"version: {version}\n"
    text = f"---\nname: {name}\ndescription: x\n{line}language: bash\n---\n"
    (directory / "TOOL.md").write_text(text)
    (directory / "index.sh").write_text(files.pop("index", f"echo {version}"))
    for path, content in files.items():
        file = directory / path.replace("__", "/")
        file.parent.mkdir(exist_ok=True)
        file.write_text(content)
    return directory


def tree(directory: Path) -> Files:
    """Every file below, with its content and mode."""
    return {
        str(file.relative_to(directory)): f"{file.stat().st_mode:o} {file.read_text()}"
        for file in sorted(directory.rglob("*"))
        if file.is_file()
    }


@pytest.fixture
def seed(tmp_path: Path) -> Path:
    path = tmp_path / "seed"
    path.mkdir()
    return path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "data" / "tools"


def planned(seed: Path, target: Path) -> list[Action]:
    return plan(str(seed), str(target), Cache(), LATER)


def synced(
    seed: Path,
    target: Path,
    step: Callable[[str], None] = lambda _: None,
    exchange: Exchange = rename_exchange,
) -> Report:
    return apply(str(seed), str(target), Cache(), LATER, step=step, exchange=exchange)


def no_exchange(_one: str, _other: str) -> bool:
    """A file system that does not know RENAME_EXCHANGE."""
    return False


def test_the_plan_follows_the_versions(seed: Path, target: Path) -> None:
    """Specification, "How Sync Works"."""
    for name, ours, theirs in (
        ("a_new", 1, ()),
        ("b_update", 3, (2,)),
        ("c_equal", 2, (2,)),
        ("d_newer_there", 1, (5,)),
        ("e_missing_there", 1, (None,)),
        ("f_missing_both", None, (None,)),
    ):
        tool(seed, name, ours)
        for version in theirs:
            tool(target, name, version)
    tool(target, "g_foreign", 7)
    assert planned(seed, target) == [
        Action("add", "a_new", 1),
        Action("update", "b_update", 3, 2),
        Action("keep", "c_equal", 2, 2),
        Action("keep", "d_newer_there", 1, 5),
        Action("update", "e_missing_there", 1, 0),
        Action("keep", "f_missing_both", 0, 0),
        Action("foreign", "g_foreign", None, 7, "not one of the seed's tools"),
    ]


def test_a_plan_changes_nothing(seed: Path, target: Path) -> None:
    """`edged sync --dry-run`."""
    tool(seed, "a")
    assert planned(seed, target) == [Action("add", "a", 1)]
    assert not target.exists()


@pytest.mark.parametrize(
    "change",
    ["content", "same size", "run bit", "more", "less", "link", "directory", "unreadable"],
)
def test_other_content_at_the_same_version_differs(
    seed: Path, target: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contract, section 2: sync says which differ at the same version."""
    tool(seed, "a", bin__run="x")
    synced(seed, target)
    assert [one.kind for one in planned(seed, target)] == ["keep"]
    copy = target / "a"
    if change == "content":
        (copy / "index.sh").write_text("edited")
    elif change == "same size":
        (copy / "index.sh").write_text("echo 2")
    elif change == "run bit":
        (copy / "index.sh").chmod(0o755)
    elif change == "more":
        (copy / "notes").write_text("")
    elif change == "less":
        (copy / "bin" / "run").unlink()
    elif change == "link":
        (copy / "bin" / "run").unlink()
        (copy / "bin" / "run").symlink_to("/etc/passwd")
    elif change == "directory":
        (copy / "notes").mkdir()
    else:
        real = os.open

        def refuse(path: str, *rest: int) -> int:
            if path.endswith("data/tools/a/bin/run"):
                raise PermissionError(errno.EACCES, "Permission denied")
            return real(path, *rest)

        monkeypatch.setattr(os, "open", refuse)
    assert planned(seed, target) == [Action("differs", "a", 1, 1, DIFFERS)]
    before = tree(copy)
    assert [one.kind for one in synced(seed, target).actions] == ["differs"]
    assert tree(copy) == before


def test_compiled_python_is_neither_copied_nor_a_difference(seed: Path, target: Path) -> None:
    """An installer compiles what lies in a package."""
    tool(seed, "a")
    (seed / "a" / "__pycache__").mkdir(exist_ok=True)
    (seed / "a" / "__pycache__" / "index.pyc").write_text("x")
    synced(seed, target)
    assert not (target / "a" / "__pycache__").exists()
    assert [one.kind for one in planned(seed, target)] == ["keep"]


def test_a_copy_is_whole_with_its_run_bits(seed: Path, target: Path) -> None:
    """Issue 2, part 3; contract, section 10: helper files and run bits included."""
    directory = tool(seed, "a", bin__run="x", index="y" * 3_000_000)
    (directory / "bin" / "run").chmod(0o700)
    (directory / "bin" / "empty").mkdir()
    mask = os.umask(0o077)
    try:
        report = synced(seed, target)
    finally:
        os.umask(mask)
    assert report == Report((Action("add", "a", 1),))
    copy = target / "a"
    assert (copy / "bin" / "run").stat().st_mode & 0o7777 == 0o755
    assert (copy / "index.sh").stat().st_mode & 0o7777 == 0o644
    assert (copy / "bin" / "empty").stat().st_mode & 0o7777 == 0o755
    assert copy.stat().st_mode & 0o7777 == 0o755
    assert (copy / "index.sh").read_text() == "y" * 3_000_000


@pytest.mark.parametrize("exchange", [rename_exchange, no_exchange])
def test_an_update_replaces_all_and_keeps_the_old_copy_beside(
    seed: Path, target: Path, exchange: Exchange
) -> None:
    """Issue 2, part 3; specification: the entire tool directory is replaced."""
    tool(seed, "a", 2)
    old = tree(tool(target, "a", 1, index="my edit", notes="mine"))
    assert synced(seed, target, exchange=exchange).failed == ()
    assert tree(target / "a") == tree(seed / "a")
    assert tree(target / ".replaced" / "a-v1") == old
    assert sorted(os.listdir(target)) == [".replaced", ".sync.lock", "a"]


def test_one_replaced_copy_is_kept_for_each_tool(seed: Path, target: Path) -> None:
    """SD cards are small; names that look like another's copy are left alone."""
    for name in ("a", "a-v2"):
        tool(seed, name, 9)
        tool(target, name, 1)
        tool(target / ".replaced", f"{name}-v0")
        (target / ".replaced" / f"{name}-v00").write_text("a file, not a directory")
    tool(target / ".replaced", "a-v1", index="former of that version")
    synced(seed, target)
    assert sorted(os.listdir(target / ".replaced")) == ["a-v1", "a-v2-v1"]
    assert (target / ".replaced" / "a-v1" / "index.sh").read_text() == "echo 1"


def test_a_users_edit_survives_until_the_seed_is_newer(seed: Path, target: Path) -> None:
    """Specification: user edits are preserved until seed version exceeds theirs."""
    tool(seed, "a", 2)
    mine = tool(target, "a", 2, index="my edit")
    synced(seed, target)
    assert (mine / "index.sh").read_text() == "my edit"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("---\nname: a\nversion: 4\n---\n", 4),
        ("---\nname: [\nversion: 4\n---\n", 4),
        ("version: 4\r\n", 4),
        ("---\nname: a\nversion: x\n---\n", 0),
        ("---\nname: a\nversion: -3\n---\n", 0),
        ("---\n- version\n---\n", 0),
        ("nothing", 0),
        (None, 0),
    ],
)
def test_a_version_is_read_from_a_broken_file_too(
    tmp_path: Path, text: str | None, version: int
) -> None:
    """An edit with a typing error must not look like version 0 and be replaced."""
    if text is not None:
        (tmp_path / "TOOL.md").write_bytes(text.encode())
    assert version_of(str(tmp_path)) == version


def test_a_broken_copy_is_judged_by_its_version(seed: Path, target: Path) -> None:
    """Issue 2, part 3: a user's edits survive until the seed's version exceeds theirs."""
    tool(seed, "a", 2)
    tool(target, "a", 2)
    (target / "a" / "index.sh").unlink()
    tool(seed, "b", 2)
    (tool(target, "b", 2) / "TOOL.md").write_text("---\nname: [\nversion: 3\n---\n")
    assert [(one.kind, one.target_version) for one in planned(seed, target)] == [
        ("differs", 2),
        ("keep", 3),
    ]


def test_a_seed_that_cannot_be_used_is_refused_and_the_others_go_on(
    seed: Path, target: Path
) -> None:
    """Issue 2, part 3: links are never followed out; one broken directory hides no sibling."""
    (tool(seed, "a_link") / "data").symlink_to("/etc/passwd")
    os.mkfifo(tool(seed, "b_fifo") / "pipe")
    (tool(seed, "c_broken") / "index.sh").unlink()
    tool(seed, "d_good")
    a, b, c, d = synced(seed, target).actions
    assert [one.kind for one in (a, b, c, d)] == ["refused", "refused", "refused", "add"]
    assert "a_link/data: is a link or a special file" in a.reason
    assert "special file" in b.reason
    assert c.reason == "language: bash wants index.sh; there is none: add index.sh"
    assert sorted(os.listdir(target)) == [".sync.lock", "d_good"]


def test_a_seed_that_cannot_be_read_is_refused(
    seed: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its reason is told; nothing is half copied."""
    tool(seed, "a", bin__run="x")
    real = os.scandir

    def refuse(path: str) -> object:
        if path.endswith("/bin/"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", refuse)
    (action,) = planned(seed, target)
    assert action.kind == "refused"
    assert "cannot be read: Permission denied" in action.reason


def test_what_is_in_the_way_is_left_alone(seed: Path, target: Path, tmp_path: Path) -> None:
    """Links in the target are never followed out."""
    outside = tool(tmp_path / "outside", "a", 1)
    target.mkdir(parents=True)
    tool(seed, "a", 2)
    (target / "a").symlink_to(outside)
    tool(seed, "b", 2)
    (target / "b").write_text("a file")
    before = tree(outside)
    report = synced(seed, target)
    assert [(one.kind, one.reason) for one in report.actions] == [
        ("foreign", "a link or file of that name is in the way")
    ] * 2
    assert tree(outside) == before
    assert (target / "a").is_symlink()


def test_a_link_inside_a_replaced_tool_is_moved_not_followed(
    seed: Path, target: Path, tmp_path: Path
) -> None:
    """Removing the kept copy must not remove what a link in it names."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("keep me")
    for version in (1, 2, 3):
        tool(seed, "a", version)
        synced(seed, target)
        (target / "a" / "link").symlink_to(outside)
        for file in (seed / "a").iterdir():
            file.unlink()
        (seed / "a").rmdir()
    assert (outside / "file").read_text() == "keep me"
    assert os.listdir(target / ".replaced") == ["a-v2"]


def test_a_second_sync_is_refused_while_one_runs(seed: Path, target: Path) -> None:
    """Under a lock: `edged sync` beside a starting daemon."""
    target.mkdir(parents=True)
    with (target / ".sync.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(BusyError, match="another sync is running"):
            synced(seed, target)
    assert synced(seed, target) == Report(())


def test_a_target_that_cannot_be_used_says_so(seed: Path, target: Path, tmp_path: Path) -> None:
    """Translated from errno at the rim."""
    (tmp_path / "data").write_text("")
    with pytest.raises(StoreError, match="nothing is lost"):
        synced(seed, target)
    (tmp_path / "data").unlink()
    target.mkdir(parents=True)
    (target / ".sync.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="nothing is lost"):
        synced(seed, target)
    assert not (tmp_path / "elsewhere").exists()


def test_a_shelf_that_is_no_directory_is_not_followed(
    seed: Path, target: Path, tmp_path: Path
) -> None:
    """`.replaced` as a link would move tools out of the data directory."""
    tool(seed, "a", 2)
    old = tree(tool(target, "a", 1))
    (tmp_path / "out").mkdir()
    (target / ".replaced").symlink_to(tmp_path / "out")
    (failure,) = synced(seed, target).failed
    assert failure == Failure("a", "is not a directory: mend that and sync again")
    assert os.listdir(tmp_path / "out") == []
    (target / ".replaced").unlink()
    synced(seed, target)
    assert tree(target / ".replaced" / "a-v1") == old


def test_a_link_that_appears_after_the_plan_is_refused(seed: Path, target: Path) -> None:
    """Checked again where it is copied."""
    tool(seed, "a")
    tool(seed, "b")

    def step(name: str) -> None:
        if name == "copy TOOL.md" and not (seed / "b" / "late").is_symlink():
            (seed / "b" / "late").symlink_to("/etc/passwd")

    (failure,) = synced(seed, target, step).failed
    assert failure.name == "b"
    assert "is a link" in failure.reason
    assert sorted(os.listdir(target)) == [".sync.lock", "a"]


class Crash(BaseException):
    """The process ends here: nothing after it runs, no handler either."""


class Stop:
    """Raises at the n-th step, once or from then on."""

    def __init__(self, at: int, error: BaseException, *, once: bool = True) -> None:
        self.at, self.error, self.once = at, error, once
        self.names: list[str] = []

    def __call__(self, name: str) -> None:
        self.names.append(name)
        count = len(self.names) - 1
        grows = name.startswith(("make", "copy"))
        if count == self.at or (not self.once and count > self.at and grows):
            raise self.error


def full() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def steps_of(tmp_path: Path, exchange: Exchange) -> list[str]:
    """The names of all steps of the sync that `laid_out` prepares."""
    watch = Stop(-1, Crash())
    seed, target = laid_out(tmp_path / "dry")
    synced(seed, target, watch, exchange)
    return watch.names


def laid_out(root: Path) -> tuple[Path, Path]:
    """A seed with an update and a new tool, and a target with an edit and a former copy."""
    seed, target = root / "seed", root / "tools"
    tool(seed, "a", 3, bin__run="new", data="new")
    tool(seed, "b", 1)
    tool(target, "a", 2, index="my edit", notes="mine")
    tool(target / ".replaced", "a-v1")
    return seed, target


EXCHANGES = pytest.mark.parametrize("exchange", [rename_exchange, no_exchange])


@EXCHANGES
def test_a_crash_at_any_step_leaves_the_old_or_the_new_tool(
    tmp_path: Path, exchange: Exchange
) -> None:
    """Issue 2, part 3: never half of one; the next run heals, and the old copy is kept."""
    names = steps_of(tmp_path, exchange)
    assert {"mark", "exchange", "keep old", "remove former"} <= set(names)
    for at, name in enumerate(names):
        seed, target = laid_out(tmp_path / str(at))
        old, new = tree(target / "a"), tree(seed / "a")
        with pytest.raises(Crash):
            synced(seed, target, Stop(at, Crash()), exchange)
        assert_whole(target, old, new, gone_between_renames=name == "move new in")
        if at % 2:
            heal_without_the_seed(target, old, new)
        assert synced(seed, target, exchange=exchange).failed == ()
        assert tree(target / "a") == new
        assert tree(target / "b") == tree(seed / "b")
        assert tree(target / ".replaced" / "a-v2") == old
        assert sorted(os.listdir(target)) == [".replaced", ".sync.lock", "a", "b"]
        assert os.listdir(target / ".replaced") == ["a-v2"]


def assert_whole(target: Path, old: Files, new: Files, *, gone_between_renames: bool) -> None:
    if (target / "a").exists():
        assert tree(target / "a") in (old, new)
    else:
        # Only where the file system cannot exchange, and only until the next run.
        assert gone_between_renames
        assert tree(target / ".swap-a-0") == old
    if (target / "b").exists():
        assert set(tree(target / "b")) == {"TOOL.md", "index.sh"}


def heal_without_the_seed(target: Path, old: Files, new: Files) -> None:
    """What a run that can copy nothing makes of it: whole tools again."""
    empty = target.parent / "empty"
    empty.mkdir()
    synced(empty, target)
    assert tree(target / "a") in (old, new)
    assert not [one for one in os.listdir(target) if one.startswith((".staging", ".swap"))]


@EXCHANGES
def test_a_crash_while_healing_is_healed_too(tmp_path: Path, exchange: Exchange) -> None:
    """Power may fail twice."""
    names = steps_of(tmp_path, exchange)
    for at in range(len(names)):
        for again in range(3):
            seed, target = laid_out(tmp_path / f"{at}-{again}")
            old, new = tree(target / "a"), tree(seed / "a")
            with pytest.raises(Crash):
                synced(seed, target, Stop(at, Crash()), exchange)
            with contextlib.suppress(Crash):
                synced(seed, target, Stop(again, Crash()), exchange)
            synced(seed, target, exchange=exchange)
            assert tree(target / "a") == new
            assert tree(target / ".replaced" / "a-v2") == old


@EXCHANGES
@pytest.mark.parametrize("once", [True, False])
def test_a_full_disk_at_any_step_leaves_the_old_or_the_new_tool(
    tmp_path: Path, exchange: Exchange, once: bool
) -> None:
    """Issue 2, part 3: ENOSPC is reported, what was there stays, nothing is left lying."""
    names = steps_of(tmp_path, exchange)
    for at in range(len(names)):
        seed, target = laid_out(tmp_path / str(at))
        old, new = tree(target / "a"), tree(seed / "a")
        report = synced(seed, target, Stop(at, full(), once=once), exchange)
        assert report.failed
        assert report.failed[0].reason == "No space left on device: mend that and sync again"
        assert tree(target / "a") in (old, new)
        if once:
            assert not [one for one in os.listdir(target) if one.startswith((".staging", ".swap"))]
        synced(seed, target, exchange=exchange)
        assert tree(target / "a") == new
        assert tree(target / ".replaced" / "a-v2") == old


def test_the_kernel_exchanges_two_directories(tmp_path: Path) -> None:
    """renameat2(2), RENAME_EXCHANGE; errors are the kernel's."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    (one / "x").write_text("")
    if rename_exchange(str(one), str(two)):
        assert os.listdir(two) == ["x"]
    with pytest.raises(FileNotFoundError):
        rename_exchange(str(one), str(tmp_path / "none"))


@pytest.mark.parametrize("how", ["no function", "not supported"])
def test_where_exchange_is_unknown_it_says_so(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old C library, or a file system such as vfat."""
    import ctypes

    class Library:
        @staticmethod
        def renameat2(*_: object) -> int:
            ctypes.set_errno(errno.EINVAL)
            return -1

    library = object() if how == "no function" else Library
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: library)
    assert rename_exchange("a", "b") is False
