"""Files under the data directory: whole or not at all, whatever the disk does."""

import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import msgspec
import pytest

from edged import store as store_module
from edged.errors import StoreError
from edged.store import Store, make_directory, sync_directory, unlink, write_all, write_atomic


class State(msgspec.Struct):
    count: int
    names: list[str] = []


@pytest.fixture
def store(tmp_path):
    return Store(str(tmp_path / "state"))


# One file ---------------------------------------------------------------------------------


def test_a_file_is_written_for_its_owner_alone(tmp_path):
    """Contract, section 3: secrets in files of mode 0600, whatever the umask is."""
    path = tmp_path / "token"
    before = os.umask(0)
    try:
        write_atomic(str(path), b"one")
    finally:
        os.umask(before)
    assert path.read_bytes() == b"one"
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["token"]


def test_a_file_may_be_for_others_too(tmp_path):
    before = os.umask(0o077)
    try:
        write_atomic(str(tmp_path / "shared"), b"", 0o644)
    finally:
        os.umask(before)
    assert (tmp_path / "shared").stat().st_mode & 0o777 == 0o644


def test_a_name_without_a_directory_is_in_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_atomic("here", b"1")
    sync_directory("")
    assert (tmp_path / "here").read_bytes() == b"1"


def test_a_crash_before_the_rename_leaves_the_old_file(tmp_path):
    """A half-written temporary file is all that such a crash leaves."""
    path = tmp_path / "state"
    write_atomic(str(path), b"old")
    (tmp_path / "state.new").write_bytes(b"ne")
    assert path.read_bytes() == b"old"
    write_atomic(str(path), b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["state"]


def test_a_link_in_place_of_the_temporary_file_is_not_followed(tmp_path):
    """open(2), O_NOFOLLOW: another user of the directory must not choose what is written."""
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / "state.new").symlink_to(tmp_path / "victim")
    with pytest.raises(StoreError):
        write_atomic(str(tmp_path / "state"), b"new")
    assert (tmp_path / "victim").read_bytes() == b"precious"
    write_atomic(str(tmp_path / "state"), b"new")


@pytest.mark.parametrize("in_the_way", ["state", "state.new"])
def test_a_directory_in_the_way_is_told_and_nothing_changes(tmp_path, in_the_way):
    (tmp_path / in_the_way).mkdir()
    with pytest.raises(StoreError, match="cannot write .*state: Is a directory") as caught:
        write_atomic(str(tmp_path / "state"), b"new")
    assert caught.value.errno is not None
    assert os.listdir(tmp_path) == [in_the_way]


def test_a_missing_directory_is_told(tmp_path):
    with pytest.raises(StoreError, match="No such file or directory"):
        write_atomic(str(tmp_path / "none" / "state"), b"")


WITH_LITTLE_ROOM = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room}))
{body}
"""


def with_little_room(room, body, *arguments):
    """Runs `body` where the kernel lets no file grow over `room` bytes."""
    code = WITH_LITTLE_ROOM.format(room=room, body=textwrap.dedent(body))
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    ).stdout


def test_a_disk_that_takes_a_part_only_leaves_the_old_file(tmp_path):
    """Facts on full disks: write(2) takes what fits first, and fails then."""
    path = tmp_path / "state"
    write_atomic(str(path), b"old")
    said = with_little_room(
        1000,
        """
        from edged.errors import StoreError
        from edged.store import write_atomic
        try:
            write_atomic(sys.argv[1], b"x" * 1500)
        except StoreError as error:
            print(error)
        """,
        str(path),
    )
    assert said == f"cannot write {path}: File too large\n"
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["state"]


def test_a_full_disk_is_told_with_what_to_do():
    """/dev/full answers ENOSPC (full(4)); the message is for a person."""
    with open("/dev/full", "wb", buffering=0) as file:
        with pytest.raises(OSError, match="No space") as caught:
            write_all(file.fileno(), b"x")
    error = store_module.failed("write", "/data/x", caught.value)
    assert str(error) == "cannot write /data/x: No space left on device: free some space"
    read_only = OSError(30, "Read-only file system")
    assert str(store_module.failed("write", "/x", read_only)).endswith(
        "the file system is read-only"
    )
    assert "odd" in str(store_module.failed("write", "/x", OSError("odd")))


def test_removing_what_is_not_there_is_no_fault(tmp_path):
    unlink(str(tmp_path / "none"))
    (tmp_path / "file").touch()
    unlink(str(tmp_path / "file"))
    assert os.listdir(tmp_path) == []


# Directories ------------------------------------------------------------------------------


def test_directories_are_made_with_their_parents(tmp_path):
    make_directory(str(tmp_path / "a" / "b"))
    make_directory(str(tmp_path / "a" / "b"))
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    make_directory(str(tmp_path / "c"), 0o755)
    assert (tmp_path / "c").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("path", ["file", "file/below"])
def test_a_file_in_the_way_of_a_directory_is_told(tmp_path, path):
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot make the directory"):
        make_directory(str(tmp_path / path))


def test_a_directory_that_cannot_be_made_is_told():
    """/proc takes no directories, not even root's."""
    with pytest.raises(StoreError, match="cannot make the directory /proc/edged"):
        make_directory("/proc/edged/state")


# State ------------------------------------------------------------------------------------


def test_what_was_saved_is_loaded(store):
    store.save("jobs", State(3, ["ä"]))
    assert store.load("jobs", State, State(0)) == State(3, ["ä"])
    assert store.load("others", State, State(0)) == State(0)


@pytest.mark.parametrize(
    "data", [b"", b'{"count": 3', b"\x00" * 512, b'{"count": "x"}', b"[" * 100_000, b'"\xff"']
)
def test_a_broken_file_is_set_aside_and_the_generation_before_is_used(store, data, capsys):
    """Architecture, laws, state; facts on power loss: move aside, take the previous one, go on."""
    store.save("jobs", State(1))
    store.save("jobs", State(2))
    path = store.path("jobs")
    with open(path, "wb") as file:
        file.write(data)
    assert store.load("jobs", State, State(0)) == State(1)
    with open(f"{path}.broken", "rb") as file:
        assert file.read() == data
    assert f"kept as {path}.broken" in capsys.readouterr().err
    assert len(store.broken) == 1
    store.save("jobs", State(5))
    assert store.load("jobs", State, State(0)) == State(5)


def test_each_broken_file_is_kept(store):
    """Never erased: the second one does not replace the first."""
    make_directory(os.path.dirname(store.path("jobs")))
    for number in range(3):
        Path(store.path("jobs")).write_text(f"broken {number}")
        assert store.load("jobs", State, State(0)) == State(0)
    kept = [store.path("jobs") + end for end in (".broken", ".broken.1", ".broken.2")]
    assert [Path(path).read_text() for path in kept] == [f"broken {n}" for n in range(3)]


def test_two_broken_generations_are_set_aside_and_the_default_is_used(store):
    store.save("jobs", State(1))
    store.save("jobs", State(2))
    for path in (store.path("jobs"), store.path("jobs") + ".previous"):
        with open(path, "wb") as file:
            file.write(b"?")
    assert store.load("jobs", State, State(0)) == State(0)
    assert len(store.broken) == 2


def test_a_file_that_someone_removed_begins_anew(store):
    """The generation before it is for accidents, not for what a person wanted."""
    store.save("jobs", State(1))
    store.save("jobs", State(2))
    os.unlink(store.path("jobs"))
    assert store.load("jobs", State, State(0)) == State(0)


def test_what_cannot_be_read_is_no_corruption(store):
    """Facts on corrupt files: an error other than "missing" stops, and overwrites nothing."""
    os.makedirs(store.path("jobs"))
    with pytest.raises(StoreError, match="cannot read .*jobs.json: Is a directory"):
        store.load("jobs", State, State(0))
    assert os.path.isdir(store.path("jobs"))


def test_what_cannot_be_set_aside_is_not_given_up(store):
    """A name at its longest has no room for `.broken`: rename(2) answers ENAMETOOLONG."""
    make_directory(os.path.dirname(store.path("x")))
    name = "n" * 250
    with open(store.path(name), "wb") as file:
        file.write(b"?")
    with pytest.raises(StoreError, match="cannot set aside the broken"):
        store.load(name, State, State(0))
    with open(store.path(name), "rb") as file:
        assert file.read() == b"?"


def test_a_save_that_fails_changes_nothing(store, tmp_path):
    """The kernel refuses each step in turn; what was there stays whole."""
    store.save("jobs", State(1))
    before = sorted(os.listdir(tmp_path / "state"))
    os.mkdir(store.path("jobs") + ".new")
    with pytest.raises(StoreError):
        store.save("jobs", State(2))
    os.rmdir(store.path("jobs") + ".new")
    said = with_little_room(
        10,
        """
        from edged.errors import StoreError
        from edged.store import Store
        try:
            Store(sys.argv[1]).save("jobs", {"count": 2, "names": []})
        except StoreError as error:
            print("refused")
        """,
        str(tmp_path / "state"),
    )
    assert said == "refused\n"
    assert store.load("jobs", State, State(0)) == State(1)
    assert set(os.listdir(tmp_path / "state")) <= {*before, "jobs.json.previous"}


AS_A_PLAIN_USER = """
import os, sys
from edged.errors import StoreError
from edged.store import Store
if os.geteuid() == 0:
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
try:
    Store(sys.argv[1]).save("jobs", {"count": 2})
except StoreError as error:
    print(error)
"""


def test_a_directory_that_takes_nothing_is_told_and_the_state_stays():
    """A state directory without write permission; the test's own one is closed to other users."""
    with tempfile.TemporaryDirectory() as directory:
        state = os.path.join(directory, "state")
        Store(state).save("jobs", State(1))
        os.chmod(directory, 0o755)
        os.chmod(state, 0o555)
        done = subprocess.run(
            [sys.executable, "-c", AS_A_PLAIN_USER, state],
            capture_output=True,
            text=True,
            check=True,
        )
        os.chmod(state, 0o755)
        assert done.stdout == f"cannot write {state}/jobs.json: Permission denied\n"
        assert Store(state).load("jobs", State, State(0)) == State(1)


CRASHING = """
import os, sys
from edged.store import Store
step = int(sys.argv[2])
real = {name: getattr(os, name) for name in ("open", "write", "fsync", "rename", "link", "unlink")}
def stepping(name):
    def call(*args, **kwargs):
        global step
        if step == 0:
            real["write"](1, b"crashed")
            os._exit(9)
        step -= 1
        if name == "write":
            # A power cut comes in the middle of a write.
            args = (args[0], args[1][: max(1, len(args[1]) // 2)])
        return real[name](*args, **kwargs)
    return call
for name in real:
    setattr(os, name, stepping(name))
Store(sys.argv[1]).save("jobs", {"count": 2, "names": ["x" * 50]})
"""


def test_a_crash_at_any_step_leaves_the_old_or_the_new_state(store, tmp_path):
    """Issue 2, shows: `kill -9` at random moments; here at each system call in turn."""
    steps = 0
    while True:
        Store(str(tmp_path / "state")).save("jobs", State(1))
        done = subprocess.run(
            [sys.executable, "-c", CRASHING, str(tmp_path / "state"), str(steps)],
            capture_output=True,
            check=False,
        )
        found = store.load("jobs", State, State(0))
        if done.returncode == 0:
            assert found.count == 2
            break
        assert (done.returncode, done.stdout) == (9, b"crashed"), done.stderr
        assert found in (State(1), State(2, ["x" * 50]))
        steps += 1
    assert steps > 8
    assert store.broken == []
