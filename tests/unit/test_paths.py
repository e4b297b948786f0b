"""Where files lie (contract, section 3)."""

import grp
import os
import socket

import pytest

from edged import paths

NAMES = (
    "EDGED_CONFIG",
    "EDGED_SOCKET",
    "DATA_PATH",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "XDG_RUNTIME_DIR",
    "INVOCATION_ID",
)


@pytest.fixture
def user(monkeypatch, tmp_path):
    """A plain user with an empty home and no other variables."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 424_242)
    return tmp_path


@pytest.fixture
def root(monkeypatch, user):
    monkeypatch.setattr(os, "geteuid", lambda: 0)


def test_environment_names_every_place(user, monkeypatch):
    monkeypatch.setenv("EDGED_CONFIG", "c.yaml")
    monkeypatch.setenv("DATA_PATH", "d")
    monkeypatch.setenv("EDGED_SOCKET", "s")
    found = paths.config_file(), paths.data_directory(), paths.socket_path(), paths.client_socket()
    assert found == ("c.yaml", "d", "s", "s")


def test_root_uses_the_places_of_the_system(root):
    found = paths.config_file(), paths.data_directory(), paths.socket_path()
    assert found == ("/etc/edged/edged.yaml", "/var/lib/edged", "/run/edged.sock")


def test_unit_of_the_system_uses_the_places_of_the_system(user, monkeypatch):
    """systemd.exec(5): INVOCATION_ID is set; XDG_RUNTIME_DIR is for users' units only."""
    monkeypatch.setenv("INVOCATION_ID", "0" * 32)
    assert paths.data_directory() == "/var/lib/edged"
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/424242")
    assert paths.data_directory() != "/var/lib/edged"


def test_user_has_places_of_its_own(user, monkeypatch):
    """XDG Base Directory Specification: the defaults below the home directory."""
    assert paths.config_file() == f"{user}/.config/edged/edged.yaml"
    assert paths.data_directory() == f"{user}/.local/share/edged"
    monkeypatch.setenv("XDG_CONFIG_HOME", "/c")
    monkeypatch.setenv("XDG_DATA_HOME", "/d")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(user))
    assert paths.config_file() == "/c/edged/edged.yaml"
    assert paths.data_directory() == "/d/edged"
    assert paths.socket_path() == f"{user}/edged/edged.sock"


def test_relative_path_in_a_variable_is_ignored(user, monkeypatch):
    """XDG Base Directory Specification: all paths must be absolute."""
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert paths.data_directory() == f"{user}/.local/share/edged"


def test_socket_lies_with_the_state_where_there_is_no_runtime_directory(user):
    assert paths.socket_path() == f"{user}/.local/state/edged/edged.sock"


def test_client_takes_the_daemon_of_the_system_when_only_that_is_there(user, monkeypatch):
    there = user / "system.sock"
    monkeypatch.setattr(paths, "SYSTEM_SOCKET", str(there))
    own = paths.socket_path()
    assert paths.client_socket() == own
    there.touch()
    assert paths.client_socket() == str(there)
    os.makedirs(os.path.dirname(own))
    open(own, "w").close()
    assert paths.client_socket() == own


def test_client_takes_the_socket_that_the_daemon_of_its_data_wrote_down(user, monkeypatch):
    """`edged serve --socket` may name any place; the lock of the data directory tells it."""
    told = user / "elsewhere.sock"
    monkeypatch.setenv("DATA_PATH", str(user))
    monkeypatch.setattr(paths, "SYSTEM_SOCKET", str(user / "system.sock"))
    own = paths.socket_path()
    (user / "lock").write_text(f"{told}\nmore\n")
    assert paths.client_socket() == own
    told.touch()
    (user / "system.sock").touch()
    assert paths.client_socket() == str(told)
    os.makedirs(os.path.dirname(own))
    open(own, "w").close()
    assert paths.client_socket() == own
    monkeypatch.setenv("EDGED_SOCKET", "s")
    assert paths.client_socket() == "s"


@pytest.mark.parametrize(
    "lock", [b"", b"\n", b"here.sock\n", b"/no\0path\n", b"/none\xff\n", None]
)
def test_lock_that_names_no_socket_is_passed_over(lock, user, monkeypatch):
    """One of an older daemon is empty; a relative path would be another one here."""
    monkeypatch.setenv("DATA_PATH", str(user))
    monkeypatch.setattr(paths, "SYSTEM_SOCKET", str(user / "none.sock"))
    monkeypatch.chdir(user)
    (user / "here.sock").touch()
    if lock is None:
        (user / "lock").mkdir()
    else:
        (user / "lock").write_bytes(lock)
    assert paths.client_socket() == paths.socket_path()


def test_refusal_and_absence_are_told_apart():
    absent = paths.unreachable("/s", FileNotFoundError())
    assert absent == "no daemon answers at /s: start it with edged serve"
    assert paths.unreachable("/s", PermissionError()) == (
        "you may not connect to /s: join its group (sudo usermod -aG edged $USER) and log in "
        "again, or use sudo"
    )


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        (0o660, "join its group (sudo usermod -aG staff $USER) and log in again, or use sudo"),
        (0o600, "use sudo"),
    ],
)
def test_who_may_not_connect_is_told_the_group_that_may(tmp_path, monkeypatch, mode, told):
    """Contract, section 4: mode 0660 and a group; without one it is its owner's alone."""
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(path)
    os.chmod(path, mode)
    staff = grp.struct_group(("staff", "x", os.stat(path).st_gid, []))
    monkeypatch.setattr(grp, "getgrgid", lambda _: staff)
    assert paths.unreachable(path, PermissionError()) == f"you may not connect to {path}: {told}"


def test_file_that_is_no_socket_is_named_as_such(tmp_path):
    """connect(2) refuses it as it refuses a dead daemon's socket."""
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file"):
        told = paths.unreachable(str(path), ConnectionRefusedError())
        assert told.startswith(f"{path} is not a socket: ")
