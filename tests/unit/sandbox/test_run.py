"""What a call is made of before anything is started."""

from __future__ import annotations

import os
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.errors import SandboxSetupError
from edged.runner import HOSTS
from edged.sandbox.profile import Bind
from edged.sandbox.run import open_bind, shell_inputs, shell_lines


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_a_shell_reads_every_value_as_it_was(value: str) -> None:
    """bash(1), QUOTING: nothing is special between single quotes."""
    script = shell_inputs({"name": value}) + b'printf %s "$INPUT_NAME"'
    assert (
        subprocess.run(["/bin/bash"], input=script, capture_output=True).stdout == value.encode()
    )


@pytest.mark.parametrize(
    ("params", "fragment"),
    [
        ({}, b""),
        ({"a": None}, b""),
        ({"a": True}, b"export INPUT_A='true'\n"),
        ({"a": 1.5}, b"export INPUT_A='1.5'\n"),
        ({"max-items": 3}, b"export INPUT_MAX_ITEMS='3'\n"),
        ({"a": ["x"]}, b"export INPUT_A='[\"x\"]'\n"),
        ({"a$(id)": "x"}, b"export INPUT_A__ID_='x'\n"),
    ],
)
def test_variables_have_safe_names_and_plain_values(params, fragment: bytes) -> None:
    """Contract 10: `INPUT_<NAME>`."""
    assert shell_inputs(params) == fragment


def test_too_big_values_are_left_out() -> None:
    """execve(2): 128 KiB for one string, and a quarter of the stack for all."""
    assert shell_inputs({"a": "x" * (100 << 10)}) != b""
    assert shell_inputs({"a": "x" * ((100 << 10) + 1)}) == b""
    many = shell_inputs({f"v{n}": "x" * 90_000 for n in range(30)} | {"small": "y"})
    assert len(many) <= 1 << 20
    assert b"INPUT_SMALL" in many


def test_a_nul_character_is_refused() -> None:
    with pytest.raises(ValueError, match="`a` has a NUL character"):
        shell_inputs({"a": "x\0"})


def test_a_bind_below_its_anchor_is_opened(tmp_path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    fd = open_bind(Bind(str(tmp_path / "a/b"), "/x", anchor=str(tmp_path)))
    assert fd is not None
    assert os.readlink(f"/proc/self/fd/{fd}") == str(tmp_path / "a/b")
    os.close(fd)
    fd = open_bind(Bind(str(tmp_path), "/x", write=True))
    assert fd is not None
    os.close(fd)


@pytest.mark.parametrize("link", ["a", "a/b", "a/b/c"])
def test_a_link_on_the_way_is_refused(tmp_path, link: str) -> None:
    """Facts on sandboxes, 7: opened first, without following."""
    (tmp_path / "real/b/c").mkdir(parents=True)
    (tmp_path / link).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / link).symlink_to(tmp_path / "real")
    before = os.listdir("/proc/self/fd")
    with pytest.raises(SandboxSetupError, match="is a symbolic link"):
        open_bind(Bind(str(tmp_path / "a/b/c"), "/x", anchor=str(tmp_path)))
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize(
    ("source", "reason"),
    [("gone", "is missing"), ("file/x", "Not a directory"), ("../x", "is not below")],
)
def test_what_cannot_be_opened_is_named(tmp_path, source: str, reason: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SandboxSetupError, match=reason):
        open_bind(Bind(f"{tmp_path}/{source}", "/x", anchor=str(tmp_path)))


def test_an_optional_bind_may_be_missing(tmp_path) -> None:
    assert open_bind(Bind(f"{tmp_path}/gone", "/x", anchor=str(tmp_path), optional=True)) is None


def test_a_bind_of_something_is_of_nothing_else(tmp_path) -> None:
    """Fault 3081 of PicoClaw: what was approved is a directory, not a name."""
    (tmp_path / "a").mkdir()
    there = os.stat(tmp_path / "a")
    bind = Bind(f"{tmp_path}/a", "/x", anchor="/", identity=(there.st_dev, there.st_ino))
    fd = open_bind(bind)
    assert fd is not None
    os.close(fd)
    (tmp_path / "a").rename(tmp_path / "old")
    (tmp_path / "a").mkdir()
    before = os.listdir("/proc/self/fd")
    with pytest.raises(SandboxSetupError, match="is no longer what it was"):
        open_bind(bind)
    assert os.listdir("/proc/self/fd") == before


LINES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)


@given(LINES, LINES)
def test_the_host_of_a_command_reads_it_as_it_was(command: str, workdir: str) -> None:
    """shell.sh: three lines, the rest is the command's own input."""
    data = shell_lines({"mode": "run", "workdir": workdir, "command": command}) + b"rest"
    with open(f"{HOSTS}/shell.sh") as file:
        text = file.read()
    function = text[text.index("next() {") : text.index("\n}\n") + 3]
    script = f"{function}for i in 1 2 3; do next; printf '%s\\0' \"$value\"; done; cat"
    for shell in ("dash", "bash"):
        done = subprocess.run([shell, "-c", script], input=data, capture_output=True)
        assert done.stdout.decode().split("\0") == ["run", workdir, command, "rest"]


def test_a_command_with_a_nul_character_is_refused() -> None:
    with pytest.raises(ValueError, match="NUL"):
        shell_lines({"mode": "run", "workdir": "/", "command": "a\0"})
