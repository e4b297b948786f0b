"""A skill is the old one or the new one, never half of one, whatever breaks."""

import errno
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from edged.errors import ExistsError, NotFoundError, StoreError
from edged.sandbox.account import Account
from edged.skills.shelf import Shelf, changes_of, read_lock
from edged.skills.stage import Lock, digest_of
from tests.unit.skills.conftest import files_of, skill_md

WHEN = "2026-08-01T00:00:00.000Z"


def put(shelf, files, version="1", name="pdf-tools", force=False):
    stage = shelf.stage(name)
    try:
        for path, data in files.items():
            stage.add(path, [data])
        lock = Lock("hub", "alice/pdf-tools", version, WHEN, digest_of(stage.files), stage.files)
        shelf.place(name, stage, lock, force=force)
    finally:
        shelf.drop(stage)


@pytest.fixture
def shelf(tmp_path):
    made = Shelf(str(tmp_path / "skills"))
    made.prepare()
    return made


def state(path):
    """The version that is there, and that its files are that version's and whole."""
    lock = read_lock(str(path))
    assert lock is not None
    assert changes_of(str(path), lock) == []
    return lock.version


def test_new_skill_replaces_the_old_one_which_is_kept(shelf, tmp_path):
    put(shelf, files_of(version="1"))
    put(shelf, files_of(version="2"), "2")
    assert state(tmp_path / "skills" / "pdf-tools") == "2"
    assert state(tmp_path / "skills" / ".replaced" / "pdf-tools") == "1"
    assert sorted(os.listdir(tmp_path / "skills")) == [".replaced", "pdf-tools"]


def test_file_system_that_cannot_exchange_is_served_too(tmp_path):
    shelf = Shelf(str(tmp_path / "skills"), exchange=lambda a, b: False)
    shelf.prepare()
    put(shelf, files_of(version="1"))
    put(shelf, files_of(version="2"), "2")
    assert state(tmp_path / "skills" / "pdf-tools") == "2"
    assert state(tmp_path / "skills" / ".replaced" / "pdf-tools") == "1"


class StoppedError(Exception):
    pass


@pytest.mark.parametrize("can_exchange", [True, False])
def test_stop_at_every_step_leaves_old_or_new_whole(tmp_path, can_exchange):
    """Section 5, 20: remove-then-copy lost the skill, a half copy looked whole."""
    steps = []
    number = 0
    while True:
        path = str(tmp_path / f"skills{number}")
        first = Shelf(path)
        first.prepare()
        put(first, files_of(version="1"))
        put(first, files_of(version="2"), "2")
        seen = []

        def step(name):
            seen.append(name)
            if len(seen) - 1 == number:
                raise StoppedError(name)

        options = {} if can_exchange else {"exchange": lambda a, b: False}
        second = Shelf(path, step=step, **options)
        second.drop = lambda stage: None  # a killed process cleans nothing up
        try:
            put(second, files_of(version="3"), "3")
        except StoppedError:
            pass
        healed = Shelf(path)
        healed.prepare()
        now = state(f"{path}/pdf-tools")
        assert state(f"{path}/.replaced/pdf-tools") == {"2": "1", "3": "2"}[now]
        left = [n for n in os.listdir(path) if n not in ("pdf-tools", ".replaced")]
        assert left == []
        if len(seen) <= number:
            break
        steps.append(seen[-1])
        number += 1
    assert {"make stage", "seal", "check", "prepare swap", "exchange", "keep old"} <= set(steps)


@pytest.mark.parametrize("can_exchange", [True, False])
def test_full_disk_at_every_step_leaves_the_old_one_in_place(tmp_path, can_exchange):
    """Told as what it is, unless the new one is in already; nothing waits for a restart."""
    number = 0
    while True:
        path = str(tmp_path / f"skills{number}")
        first = Shelf(path)
        first.prepare()
        put(first, files_of(version="1"))
        seen = []

        def step(name):
            seen.append(name)
            if len(seen) - 1 == number:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        options = {} if can_exchange else {"exchange": lambda a, b: False}
        second = Shelf(path, step=step, **options)
        try:
            put(second, files_of(version="2"), "2")
        except StoreError as error:
            assert "free some space" in str(error)
            assert state(f"{path}/pdf-tools") == "1"
        else:
            assert state(f"{path}/pdf-tools") == "2"
        if len(seen) <= number:
            break
        number += 1
    assert number > 5


def test_kill_at_random_moments_leaves_old_or_new_whole(tmp_path):
    """A process that installs version after version dies by SIGKILL, again and again."""
    path = tmp_path / "skills"
    script = textwrap.dedent(
        """
        import sys
        sys.path[:0] = sys.argv[1].split(":")
        from tests.unit.skills.test_shelf import put
        from tests.unit.skills.conftest import files_of
        from edged.skills.shelf import Shelf
        shelf = Shelf(sys.argv[2])
        shelf.prepare()
        version = int(sys.argv[3])
        while True:
            version += 1
            put(shelf, files_of(version=str(version)), str(version))
            print(version, flush=True)
        """
    )
    root = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
    acknowledged = 0
    for kills in range(12):
        process = subprocess.Popen(
            [sys.executable, "-c", script, root, str(path), str(acknowledged)],
            stdout=subprocess.PIPE,
        )
        for _ in range(kills % 4 + 1):
            line = process.stdout.readline()
        acknowledged = int(line)
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().split()
        process.stdout.close()
        assert process.wait() == -signal.SIGKILL
        acknowledged = int(rest[-1]) if rest else acknowledged
        healed = Shelf(str(path))
        healed.prepare()
        # What was acknowledged is there, or the one that was on its way.
        assert int(state(path / "pdf-tools")) in (acknowledged, acknowledged + 1)
        assert [n for n in os.listdir(path) if n not in ("pdf-tools", ".replaced")] == []
        acknowledged = int(state(path / "pdf-tools"))


def test_what_a_person_changed_is_not_replaced_unless_forced(shelf, tmp_path):
    """Section 5, 22: edits were overwritten."""
    put(shelf, files_of(version="1"))
    skill = tmp_path / "skills" / "pdf-tools"
    (skill / "SKILL.md").write_bytes(skill_md(about="Mine."))
    (skill / "new.txt").write_text("mine")
    (skill / "scripts" / "go.sh").unlink()
    with pytest.raises(ExistsError, match=r"SKILL.md, new.txt, scripts/go.sh"):
        put(shelf, files_of(version="2"), "2")
    assert (skill / "new.txt").read_text() == "mine"
    put(shelf, files_of(version="2"), "2", force=True)
    assert state(skill) == "2"
    assert (tmp_path / "skills" / ".replaced" / "pdf-tools" / "new.txt").read_text() == "mine"


def test_edit_between_the_look_and_the_swap_is_seen(tmp_path):
    """Section 5, 22: it is looked at once more at the last moment."""
    path = tmp_path / "skills"

    def step(name):
        if name == "check" and (path / "pdf-tools").exists():
            (path / "pdf-tools" / "late.txt").write_text("mine")

    shelf = Shelf(str(path), step=step)
    shelf.prepare()
    put(shelf, files_of(version="1"))
    shelf.check("pdf-tools", force=False)
    with pytest.raises(ExistsError, match=r"late.txt"):
        put(shelf, files_of(version="2"), "2")


def test_skill_made_by_hand_is_not_replaced_unless_forced(shelf, tmp_path):
    (tmp_path / "skills" / "pdf-tools").mkdir()
    (tmp_path / "skills" / "pdf-tools" / "SKILL.md").write_bytes(skill_md())
    with pytest.raises(ExistsError, match="not from a registry"):
        put(shelf, files_of())
    with pytest.raises(ExistsError, match="force removes it"):
        shelf.remove("pdf-tools", force=False)


def test_link_in_the_way_is_never_followed_or_replaced(shelf, tmp_path):
    """Section 5, 21: a symlink as the destination."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "skills" / "pdf-tools").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="is no directory"):
        put(shelf, files_of(), force=True)
    assert os.listdir(tmp_path / "elsewhere") == []


def test_name_that_differs_by_form_alone_is_refused(shelf, tmp_path):
    (tmp_path / "skills" / "PDF-Tools").mkdir()
    with pytest.raises(ExistsError, match="differs by case alone"):
        put(shelf, files_of(), force=True)


def test_removed_skill_is_kept_aside(shelf, tmp_path):
    put(shelf, files_of())
    shelf.remove("pdf-tools", force=False)
    assert shelf.entries() == []
    assert state(tmp_path / "skills" / ".replaced" / "pdf-tools") == "1"
    with pytest.raises(NotFoundError):
        shelf.remove("pdf-tools", force=False)
    for name in ("..", ".replaced", "", "a/b"):
        with pytest.raises(NotFoundError):
            shelf.remove(name, force=True)


def test_one_bad_directory_loses_no_other(shelf, tmp_path):
    """Section 5, 2, 3, 14, 18: faults are shown in the list; the others load."""
    put(shelf, files_of())
    base = tmp_path / "skills"
    for name, data in (("bad-yaml", b"---\na: [\n---\n"), ("bad-bytes", b"\xff"), ("empty", None)):
        (base / name).mkdir()
        if data is not None:
            (base / name / "SKILL.md").write_bytes(data)
    (base / "broken").symlink_to("nowhere")
    (base / "out").symlink_to(tmp_path)
    (base / "notes.txt").write_text("no skill")
    (base / "lower").mkdir()
    (base / "lower" / "skill.md").write_bytes(skill_md("lower"))
    found = {one.name: one.problem for one in shelf.entries()}
    assert found["pdf-tools"] == found["lower"] == ""
    assert found["bad-yaml"].startswith("SKILL.md:")
    assert "not UTF-8" in found["bad-bytes"]
    assert found["empty"] == "no SKILL.md"
    assert found["broken"] == "is a link that leads nowhere"
    assert found["out"].startswith("is a link that leads out")
    assert "notes.txt" not in found


def test_skill_md_that_is_a_link_out_is_not_read(shelf, tmp_path):
    (tmp_path / "secret").write_bytes(skill_md("x", "secret words"))
    (tmp_path / "skills" / "x").mkdir()
    (tmp_path / "skills" / "x" / "SKILL.md").symlink_to(tmp_path / "secret")
    [entry] = shelf.entries()
    assert entry.facts is None
    assert "a link leads out" in entry.problem


def test_change_of_a_skill_is_seen_at_the_next_look(shelf, tmp_path):
    put(shelf, files_of())
    assert shelf.find("pdf-tools").facts.description == "Reads and fills PDF forms."
    (tmp_path / "skills" / "pdf-tools" / "SKILL.md").write_bytes(skill_md(about="Another thing."))
    assert shelf.find("pdf-tools").facts.description == "Another thing."


def test_files_of_a_user_belong_to_the_tools_account(tmp_path):
    """Contract, section 10; a daemon of a plain user gives nothing away."""
    shelf = Shelf(str(tmp_path / "skills"), Account(65534, 65534, "nobody"))
    shelf.prepare()
    put(shelf, files_of())
    owner = 65534 if os.geteuid() == 0 else os.geteuid()
    for folder, folders, files in os.walk(tmp_path / "skills"):
        for one in ("", *folders, *files):
            assert os.stat(os.path.join(folder, one)).st_uid == owner
