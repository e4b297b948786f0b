"""Finding tool directories, remembering them, and who shadows whom."""

import fcntl
import os
import pathlib
import signal
import sys

import msgspec
import pytest

from edged.errors import StoreError
from edged.toolmd import discover
from edged.toolmd.check import check
from edged.toolmd.discover import (
    DIRECTORIES_MAX,
    FILES_MAX,
    RACY_NS,
    Cache,
    Entry,
    Problem,
    entry_file,
    examine,
    fingerprint,
    foreign,
    read_inside,
    scan,
    scan_iter,
)
from edged.toolmd.manifest import Manifest

Path = pathlib.Path
LATER = 4_102_444_800.0
"""2100-01-01: long after every file of a test was written."""


def tool(root: Path, name: str, /, *, entry: str = "index.py", **fields: object) -> Path:
    directory = root / name
    directory.mkdir(parents=True)
    values = {"name": name, "description": "x", "version": 1, "language": "python", **fields}
    lines = "\n".join(f"{key}: {value}" for key, value in values.items())
    (directory / "TOOL.md").write_text(f"---\n{lines}\n---\nbody\n")
    if entry:
        (directory / entry).write_text("code")
    return directory


def entries(root: Path, cache: Cache | None = None, now: float = LATER) -> list[Entry]:
    return scan(str(root), "user", cache or Cache(), now)


def problem(entry: Entry) -> Problem:
    assert entry.problem is not None
    assert entry.problem.reason_code == "invalid"
    return entry.problem


def test_tools_are_found_in_sorted_order(tmp_path: Path) -> None:
    """Specification, "How Discovery Works"."""
    tool(tmp_path, "b", name="hello")
    tool(tmp_path, "a")
    (tmp_path / ".staging-a-1").mkdir()
    (tmp_path / "README.md").write_text("")
    found = entries(tmp_path)
    assert [(one.name, os.path.basename(one.directory)) for one in found] == [
        ("a", "a"),
        ("hello", "b"),
    ]
    assert all(one.problem is None and one.entry == "index.py" and one.digest for one in found)
    assert all(one.origin == "user" and isinstance(one.manifest, Manifest) for one in found)


def test_a_directory_that_does_not_exist_has_no_tools(tmp_path: Path) -> None:
    """A user without tools of their own has no such directory."""
    assert entries(tmp_path / "none") == []


def test_a_root_that_is_no_directory_says_so(tmp_path: Path) -> None:
    """Issue 2, part 3: listed with its reason, never an end of the scan."""
    (tmp_path / "tools").write_text("")
    (found,) = entries(tmp_path / "tools")
    assert "cannot be read: Not a directory, so that none of its" in problem(found).reason
    assert found.name == str(tmp_path / "tools")


@pytest.mark.parametrize(
    ("language", "files", "expected"),
    [
        ("typescript", ["index.ts", "index.mjs", "index.js"], "index.ts"),
        ("typescript", ["index.mjs", "index.js"], "index.mjs"),
        ("typescript", ["index.js"], "index.js"),
        ("python", ["index.py", "index.ts"], "index.py"),
        ("bash", ["index.sh"], "index.sh"),
    ],
)
def test_the_entry_file_follows_from_the_language(
    tmp_path: Path, language: str, files: list[str], expected: str
) -> None:
    """Contract, section 10."""
    directory = tool(tmp_path, "a", entry="", language=language)
    for name in files:
        (directory / name).write_text("")
    (found,) = entries(tmp_path)
    assert (found.entry, found.problem) == (expected, None)


def test_a_missing_entry_file_is_a_fault_with_its_remedy(tmp_path: Path) -> None:
    """Contract, section 10: the declared language's file missing is a fault with its remedy."""
    tool(tmp_path, "a", entry="index.ts")
    tool(tmp_path, "b", entry="")
    mixed, bare = (problem(one) for one in entries(tmp_path))
    assert mixed.reason == "language: python wants index.py; found index.ts"
    assert mixed.remedy == "write `language: typescript` or add index.py"
    assert bare.reason == "language: python wants index.py; there is none"
    assert bare.remedy == "add index.py"


def test_a_misspelt_key_is_told_where_the_entry_file_is_missed(tmp_path: Path) -> None:
    """`langauge: python` is what is wrong, and not the file that is there."""
    directory = tmp_path / "a"
    directory.mkdir()
    text = "---\nname: a\ndescription: x\nversion: 1\nlangauge: python\n---\n"
    (directory / "TOOL.md").write_text(text)
    (directory / "index.py").write_text("code")
    found = problem(entries(tmp_path)[0])
    assert found.reason == (
        "line 5: langauge: unknown key; did you mean 'language'? (ignored); "
        "language: typescript wants index.ts or index.mjs or index.js; found index.py"
    )
    assert found.remedy == (
        f"write `language: python` or add index.ts, then run `edged check-tool {directory}`"
    )
    once = [one for one in check(str(directory)) if "unknown key" in one.reason]
    assert [one.severity for one in once] == ["warning"]


def test_a_broken_directory_never_hides_its_siblings(tmp_path: Path) -> None:
    """Issue 2, part 3: it is listed with file, line, reason."""
    tool(tmp_path, "a_good")
    tool(tmp_path, "b_two", version="x", timeout=0)
    tool(tmp_path, "c_one", version="x")
    (tmp_path / "d_empty").mkdir()
    (tmp_path / "e_bytes").mkdir()
    (tmp_path / "e_bytes" / "TOOL.md").write_bytes(b"\xff")
    (tmp_path / "f_dir" / "TOOL.md").mkdir(parents=True)
    (tmp_path / "g_fifo").mkdir()
    os.mkfifo(tmp_path / "g_fifo" / "TOOL.md")
    os.mkdir(os.fsencode(tmp_path) + b"/h_\xff")
    tool(tmp_path, "z_good")
    found = entries(tmp_path)
    assert [one.name for one in found if one.problem is None] == ["a_good", "z_good"]
    by_name = {one.name: problem(one) for one in found if one.problem is not None}
    two = by_name["b_two"]
    assert (two.file, two.line) == (f"{tmp_path}/b_two/TOOL.md", 4)
    assert two.reason.startswith("version: must be a whole number")
    assert "; line 6: timeout: must be seconds" in two.reason
    assert two.remedy == f"mend it, then run `edged check-tool {tmp_path}/b_two`"
    assert by_name["c_one"].reason.startswith("version: must be a whole number")
    assert (by_name["d_empty"].reason, by_name["d_empty"].remedy) == ("no TOOL.md", "add TOOL.md")
    assert by_name["e_bytes"].line == 1
    assert "not a regular file" in by_name["f_dir"].reason
    assert "not a regular file" in by_name["g_fifo"].reason
    assert by_name["h_\\xff"].reason == "its name is not UTF-8"
    assert msgspec.json.encode(found)


def test_a_file_that_is_too_large_is_a_problem(tmp_path: Path) -> None:
    """Issue 2, part 3: sizes bounded."""
    directory = tool(tmp_path, "a")
    (directory / "TOOL.md").write_bytes(b"x" * ((1 << 20) + 1))
    assert problem(entries(tmp_path)[0]).reason == "larger than 1 MiB"


def test_links_are_followed_inside_only(tmp_path: Path) -> None:
    """Issue 2, part 3: links are never followed out."""
    secret = tmp_path / "secret"
    secret.write_text("---\nname: secret\ndescription: leaked\nversion: 1\n---\n")
    root = tmp_path / "tools"
    inside = tool(root, "a_inside", entry="")
    (inside / "src").mkdir()
    (inside / "src" / "main.py").write_text("")
    (inside / "index.py").symlink_to("src/main.py")
    out = tool(root, "b_file")
    (out / "TOOL.md").unlink()
    (out / "TOOL.md").symlink_to(secret)
    entry = tool(root, "c_entry", entry="")
    (entry / "index.py").symlink_to("../a_inside/src/main.py")
    (root / "d_directory").symlink_to(inside)
    loop = tool(root, "e_loop", entry="")
    (loop / "index.py").symlink_to("index.py")
    dangling = tool(root, "f_dangling", entry="")
    (dangling / "index.py").symlink_to("nowhere")
    (root / "g_to_nothing").symlink_to("nowhere")
    found = entries(root)
    assert (found[0].name, found[0].problem, found[0].entry) == ("a_inside", None, "index.py")
    reasons = {one.name: problem(one).reason for one in found[1:]}
    assert reasons["b_file"] == "a link leads out of the tool's directory"
    assert reasons["c_entry"] == "a link leads out of the tool's directory"
    assert reasons["d_directory"] == "is a link"
    assert "cannot be read" in reasons["e_loop"]
    assert reasons["f_dangling"] == "no index.py"
    assert "g_to_nothing" not in reasons
    assert "leaked" not in str(found)


def test_a_root_that_is_itself_a_link_is_fine(tmp_path: Path) -> None:
    """The data directory may lie on another disk."""
    tool(tmp_path / "disk", "a")
    (tmp_path / "tools").symlink_to("disk")
    (found,) = entries(tmp_path / "tools")
    assert (found.problem, found.directory) == (None, f"{tmp_path}/tools/a")


def test_a_directory_exchanged_for_a_link_is_not_read(tmp_path: Path) -> None:
    """The check is made on the opened file, not on the name before."""
    outside = tool(tmp_path / "elsewhere", "a")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "a").symlink_to(outside)
    found = read_inside(f"{tmp_path}/tools/a", "TOOL.md", 1000)
    assert isinstance(found, Problem)
    assert "leads out" in found.reason


def test_what_a_link_names_is_not_opened_to_find_that_it_lies_outside(tmp_path: Path) -> None:
    """Opening acts: fifo(7) lets a writer go on, a device starts. A lease (fcntl(2)) breaks."""
    outside = tmp_path / "outside"
    outside.write_text("")
    for name, file in (("a", "TOOL.md"), ("b", "index.py")):
        directory = tool(tmp_path / "tools", name)
        (directory / file).unlink()
        (directory / file).symlink_to(outside)
    with outside.open("r+") as held:
        fcntl.fcntl(held, 10, signal.SIGURG)  # F_SETSIG; SIGIO would end this process
        fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        reasons = {problem(one).reason for one in entries(tmp_path / "tools")}
        assert reasons == {"a link leads out of the tool's directory"}
        assert fcntl.fcntl(held, fcntl.F_GETLEASE) == fcntl.F_WRLCK
        fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_UNLCK)


def test_a_file_that_may_not_be_read_says_so(tmp_path: Path) -> None:
    """It is known to be inside, and the open fails then."""
    directory = tool(tmp_path, "a")
    with (directory / "TOOL.md").open("r+") as held:
        fcntl.fcntl(held, 10, signal.SIGURG)
        fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        found = problem(entries(tmp_path)[0])
        fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    assert found.reason == "cannot be read: Resource temporarily unavailable"
    assert found.remedy == "check its permissions"


def test_one_directory_is_examined_without_a_cache(tmp_path: Path) -> None:
    """`edged check-tool` names directories anywhere."""
    directory = tool(tmp_path, "a")
    found = examine(str(directory), "user", LATER)
    assert (found.name, found.directory, found.problem) == ("a", str(directory), None)
    (tmp_path / "link").symlink_to("a")
    assert problem(examine(f"{tmp_path}/link", "user", LATER)).reason == "is a link"
    assert problem(examine(f"{tmp_path}/x", "user", LATER)).reason == "is not a directory"


def test_no_more_than_a_bounded_number_of_directories_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every queue and buffer is bounded and says what happens when it is full."""
    assert DIRECTORIES_MAX == 20_000
    monkeypatch.setattr(discover, "DIRECTORIES_MAX", 2)
    for name in "abcd":
        tool(tmp_path, name)
    found = entries(tmp_path)
    assert [one.name for one in found] == ["a", "b", "c"]
    assert "only the first 2 directories" in problem(found[2]).reason


def unreadable(directory: Path) -> None:
    """Makes a second reading show, by content that is no TOOL.md, with time and size kept."""
    file = directory / "TOOL.md"
    info = file.stat()
    file.write_bytes(b"x" * info.st_size)
    os.utime(file, ns=(info.st_atime_ns, info.st_mtime_ns))


def test_an_unchanged_tool_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Architecture: YAML only for files whose cached metadata is stale."""
    tool(tmp_path, "a")
    tool(tmp_path, "b", version="x")
    cache = Cache()
    before = entries(tmp_path, cache)
    assert cache.changed
    cache.changed = False

    def read(*_: object) -> bytes:
        raise AssertionError("read again")

    monkeypatch.setattr(discover, "read_inside", read)
    assert entries(tmp_path, cache) == before
    assert not cache.changed


@pytest.mark.parametrize(
    "what", ["TOOL.md", "entry", "new entry", "mtime kept", "gone", "run bit"]
)
def test_any_change_of_a_tool_is_seen(tmp_path: Path, what: str) -> None:
    """Issue 2, part 4: spares are dropped on any change of the tool."""
    directory = tool(tmp_path, "a", entry="index.mjs", language="typescript")
    cache = Cache()
    (before,) = entries(tmp_path, cache)
    if what == "TOOL.md":
        text = (directory / "TOOL.md").read_text()
        (directory / "TOOL.md").write_text(text.replace("version: 1", "version: 2"))
    elif what == "entry":
        (directory / "index.mjs").write_text("other code")
    elif what == "new entry":
        (directory / "index.ts").write_text("")
    elif what == "mtime kept":
        unreadable(directory)
    elif what == "gone":
        (directory / "index.mjs").unlink()
    else:
        (directory / "index.mjs").chmod(0o755)
    (after,) = entries(tmp_path, cache)
    assert after.digest != before.digest
    assert cache.changed
    assert entries(tmp_path, cache) == entries(tmp_path)


def test_a_file_read_shortly_after_its_change_is_compared_by_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git, Documentation/technical/racy-git: equal time stamps prove nothing then."""
    directory = tool(tmp_path, "a")
    written = (directory / "TOOL.md").stat().st_ctime_ns
    soon, late = (written + RACY_NS // 2) / 1e9, (written + 3 * RACY_NS) / 1e9
    cache = Cache()
    (before,) = entries(tmp_path, cache, soon)
    real = os.stat

    def frozen(path: str, **options: object) -> os.stat_result:
        """A file system whose clock ticks too slowly to tell the two writings apart."""
        found = real(path, **options)  # type: ignore[call-overload]
        return stats.setdefault(str(path), found)

    stats: dict[str, os.stat_result] = {}
    monkeypatch.setattr(os, "stat", frozen)
    entries(tmp_path, cache, soon)
    text = (directory / "TOOL.md").read_text()
    (directory / "TOOL.md").write_text(text.replace("version: 1", "version: 2"))
    (after,) = entries(tmp_path, cache, late)
    assert before.manifest is not None
    assert after.manifest is not None
    assert (before.manifest.version, after.manifest.version) == (1, 2)


def test_content_that_is_the_same_is_not_parsed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A touched file, or one within the racy time, costs a hash and no YAML."""
    good, bad = tool(tmp_path, "a"), tool(tmp_path, "b", version="x")
    cache = Cache()
    before = entries(tmp_path, cache)

    def parse(*_: object) -> Manifest:
        raise AssertionError("parsed again")

    monkeypatch.setattr(discover, "parse", parse)
    for directory in (good, bad):
        os.utime(directory / "TOOL.md", (1, 1))
    after = entries(tmp_path, cache)
    assert [one.manifest for one in after] == [one.manifest for one in before]
    assert [one.problem for one in after] == [one.problem for one in before]


def test_a_problem_that_went_away_without_a_trace_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that could not be read may be readable after a change of groups alone."""
    tool(tmp_path, "a")
    cache = Cache()
    refused = Problem("x", 0, "cannot be read", "")
    with monkeypatch.context() as patch:
        patch.setattr(discover, "read_inside", lambda *_: refused)
        assert problem(entries(tmp_path, cache)[0]) == refused
    assert entries(tmp_path, cache)[0].problem is None


def test_reading_errors_are_problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failing SD card must not end the scan."""
    tool(tmp_path, "a")

    def broken(*_: object) -> str:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "readlink", broken)
    assert problem(entries(tmp_path)[0]).reason == "cannot be read: Input/output error"
    monkeypatch.undo()
    found = read_inside(f"/proc/{os.getpid()}", "mem", 10)
    assert isinstance(found, Problem)
    assert "Input/output error" in found.reason


def test_the_cache_is_saved_and_loaded(tmp_path: Path) -> None:
    """Architecture: cached metadata makes the start cheap."""
    tool(tmp_path / "tools", "a")
    tool(tmp_path / "tools", "b", version="x")
    cache, file = Cache(), str(tmp_path / "cache")
    before = entries(tmp_path / "tools", cache)
    cache.save(file)
    assert not cache.changed
    loaded = Cache.load(file)
    assert entries(tmp_path / "tools", loaded) == before
    assert not loaded.changed
    assert sorted(os.listdir(tmp_path)) == ["cache", "tools"]


@pytest.mark.parametrize("kind", ["missing", "empty", "cut", "noise", "version", "other"])
def test_a_cache_that_cannot_be_used_is_ignored(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut may leave anything; another edged may judge differently."""
    tool(tmp_path / "tools", "a")
    cache, file = Cache(), tmp_path / "cache"
    before = entries(tmp_path / "tools", cache)
    cache.save(str(file))
    data = file.read_bytes()
    if kind == "version":
        monkeypatch.setattr("edged.__version__", "0.0.0.other")
    elif kind == "missing":
        file.unlink()
    else:
        file.write_bytes(
            {"empty": b"", "cut": data[:-1], "noise": b"\xc1" * 9, "other": b"\x92\x01\x02"}[kind]
        )
    loaded = Cache.load(str(file))
    assert loaded.records(str(tmp_path / "tools")) == {}
    assert entries(tmp_path / "tools", loaded) == before


def test_a_cache_that_cannot_be_saved_says_so(tmp_path: Path) -> None:
    """Raise or log, never both: the owner of the cache decides."""
    with pytest.raises(StoreError, match="the cache is not saved"):
        Cache().save(str(tmp_path / "none" / "cache"))


def test_a_removed_tool_is_forgotten(tmp_path: Path) -> None:
    """The cache holds what is there, nothing else."""
    directory = tool(tmp_path, "a")
    tool(tmp_path, "b")
    cache = Cache()
    entries(tmp_path, cache)
    for file in directory.iterdir():
        file.unlink()
    directory.rmdir()
    entries(tmp_path, cache)
    assert set(cache.records(str(tmp_path))) == {"b"}


def test_a_scan_can_be_sliced(tmp_path: Path) -> None:
    """The daemon answers between two directories."""
    for name in "abc":
        tool(tmp_path, name)
    cache = Cache()
    running = scan_iter(str(tmp_path), "global", cache, LATER)
    assert next(running).name == "a"
    assert cache.records(str(tmp_path)) == {}
    assert [one.name for one in running] == ["b", "c"]
    assert set(cache.records(str(tmp_path))) == {"a", "b", "c"}


def test_yaml_is_not_imported_for_what_is_known(tmp_path: Path) -> None:
    """Architecture: start-up and idle cost are features."""
    tool(tmp_path / "tools", "a")
    cache, file = Cache(), str(tmp_path / "cache")
    entries(tmp_path / "tools", cache)
    cache.save(file)
    code = (
        "import sys; from edged.toolmd.discover import Cache, scan\n"
        f"found = scan({str(tmp_path / 'tools')!r}, 'user', Cache.load({file!r}), {LATER})\n"
        "assert found[0].manifest and not {'yaml', 'hashlib', 'difflib'} & set(sys.modules)\n"
    )
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", code]) == 0


def test_a_fingerprint_changes_with_helper_files(tmp_path: Path) -> None:
    """Issue 2, part 4: on any change of the tool or its directories."""
    directory = tool(tmp_path, "a")
    (directory / "bin").mkdir()
    helper = directory / "bin" / "run.sh"
    helper.write_text("echo a")
    (directory / "out").symlink_to("/")
    first = fingerprint(str(directory))
    assert fingerprint(str(directory)) == first
    helper.write_text("echo bb")
    second = fingerprint(str(directory))
    helper.chmod(0o755)
    assert len({first, second, fingerprint(str(directory))}) == 3
    assert fingerprint(str(tmp_path / "none")) != first


def test_a_tool_of_too_many_files_has_no_fingerprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is beyond the bound may change unseen, and a spare would run the old code."""
    assert FILES_MAX == 1_000
    monkeypatch.setattr(discover, "FILES_MAX", 3)
    directory = tool(tmp_path, "a")
    (directory / "lib").mkdir()
    assert fingerprint(str(directory))
    (directory / "lib" / "more.py").write_text("")
    assert fingerprint(str(directory)) == ""


OURS = frozenset({os.geteuid()})


def test_a_tool_that_only_its_keepers_can_change_is_not_foreign(tmp_path: Path) -> None:
    """inode(7): the owner, and who may write; a link has no permissions of its own."""
    directory = tool(tmp_path / "tools", "a")
    (directory / "lib").mkdir()
    (directory / "lib" / "more.py").write_text("")
    (directory / "link").symlink_to("lib/more.py")
    assert foreign(str(directory), OURS) == ""


@pytest.mark.parametrize("mode", [0o020, 0o002])
@pytest.mark.parametrize("place", ["tools", "a", "a/TOOL.md", "a/index.py", "a/lib", "a/lib/b.py"])
def test_what_others_may_write_is_foreign(tmp_path: Path, place: str, mode: int) -> None:
    """A directory counts: files in it can be replaced, and modules added."""
    directory = tool(tmp_path / "tools", "a")
    (directory / "lib").mkdir()
    (directory / "lib" / "b.py").write_text("")
    path = tmp_path / "tools" / place if place != "tools" else tmp_path / "tools"
    path.chmod(path.stat().st_mode | mode)
    assert foreign(str(directory), OURS) == str(path)


def test_in_a_sticky_directory_no_other_tool_can_take_the_place(tmp_path: Path) -> None:
    """unlink(2), rename(2): EPERM where S_ISVTX is set; inside a tool names can still be added."""
    directory = tool(tmp_path / "tools", "a")
    (tmp_path / "tools").chmod(0o3775)
    assert foreign(str(directory), OURS) == ""
    directory.chmod(0o3775)
    assert foreign(str(directory), OURS) == str(directory)


def test_what_another_owns_is_foreign(tmp_path: Path) -> None:
    """chmod(2): the owner of a file may change its mode at any time."""
    directory = tool(tmp_path / "tools", "a")
    assert foreign(str(directory), frozenset({os.geteuid() + 1})) == f"{tmp_path}/tools"
    assert foreign(f"{directory}/none", OURS) == f"{directory}/none"


@pytest.mark.parametrize("place", ["a", "a/index.py"])
def test_what_was_given_away_is_foreign(tmp_path: Path, place: str) -> None:
    """A board that was shared: the directory above is root's again, the tool is not."""
    directory = tool(tmp_path / "tools", "a")
    path = tmp_path / "tools" / place
    other = 12002 if os.geteuid() == 0 else os.geteuid()  # only root gives files away
    os.chown(path, other, -1)
    assert foreign(str(directory), OURS) == ("" if other in OURS else str(path))
    assert foreign(str(directory), OURS | {other}) == ""


def test_the_entry_file_is_told_for_any_language(tmp_path: Path) -> None:
    """Contract, section 10."""
    directory = tool(tmp_path, "a")
    assert entry_file(str(directory), "python") == "index.py"
    assert isinstance(entry_file(str(directory), "bash"), Problem)
