"""Where edged's files lie. Imports `os` alone, so that `edged mcp` stays small.

Three places for each file: what the environment says, the system's for root and
for a unit of the system's systemd, the user's own (XDG Base Directory).
"""

from __future__ import annotations

import os

SYSTEM_SOCKET = "/run/edged.sock"
SYSTEM_CONFIG = "/etc/edged/edged.yaml"
SYSTEM_DATA = "/var/lib/edged"

_TYPE, _SOCKET = 0o170000, 0o140000
"""S_IFMT and S_IFSOCK (inode(7))."""


def config_file() -> str:
    """The configuration: `EDGED_CONFIG`, else the usual place."""
    named = os.environ.get("EDGED_CONFIG")
    if named:
        return named
    if _is_system():
        return SYSTEM_CONFIG
    return os.path.join(_xdg("XDG_CONFIG_HOME", ".config"), "edged", "edged.yaml")


def data_directory() -> str:
    """The data directory: `DATA_PATH`, else the usual place."""
    named = os.environ.get("DATA_PATH")
    if named:
        return named
    if _is_system():
        return SYSTEM_DATA
    return os.path.join(_xdg("XDG_DATA_HOME", os.path.join(".local", "share")), "edged")


def socket_path() -> str:
    """Where a daemon listens: `EDGED_SOCKET`, else the usual place."""
    named = os.environ.get("EDGED_SOCKET")
    if named:
        return named
    if _is_system():
        return SYSTEM_SOCKET
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}"
    if not os.path.isdir(runtime):
        # No login session has made one (cron, a container): then beside other state.
        runtime = _xdg("XDG_STATE_HOME", os.path.join(".local", "state"))
    return os.path.join(runtime, "edged", "edged.sock")


def client_socket() -> str:
    """Where a client looks: `socket_path`, or another place where a daemon is found.

    That is the socket which the daemon of the data directory was told to use, else the
    system's.
    """
    path = socket_path()
    if "EDGED_SOCKET" in os.environ or os.path.exists(path):
        return path
    for other in (_told_socket(), SYSTEM_SOCKET):
        if os.path.exists(other):
            return other
    return path


def _told_socket() -> str:
    """The socket that a daemon wrote into the lock of its data directory; empty without one."""
    try:
        lock = os.open(os.path.join(data_directory(), "lock"), os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        text = os.read(lock, 4096)
    except OSError:
        return ""
    finally:
        os.close(lock)
    path = os.fsdecode(text.partition(b"\n")[0])
    # Nobody knows what a relative one is relative to.
    return path if os.path.isabs(path) else ""


def unreachable(path: str, error: OSError) -> str:
    """What to tell a person whose client could not connect to `path`."""
    try:
        is_socket = os.stat(path).st_mode & _TYPE == _SOCKET
    except OSError:
        is_socket = True
    if not is_socket:
        return f"{path} is not a socket: name the daemon's, as `edged serve` prints it"
    if isinstance(error, PermissionError):
        return f"you may not connect to {path}: {_admitted(path)}use sudo"
    return f"no daemon answers at {path}: start it with edged serve"


def _admitted(path: str) -> str:
    """What lets a person connect for good; empty where that is root alone."""
    import grp  # noqa: PLC0415  only for an error message

    try:
        found = os.stat(path)
        group = grp.getgrgid(found.st_gid).gr_name
    except (OSError, KeyError):
        # Who may not even look cannot know: it is the configuration's by default.
        group = "edged"
    else:
        if not found.st_mode & 0o020 or group == "root":
            return ""
    return f"join its group (sudo usermod -aG {group} $USER) and log in again, or "


def _is_system() -> bool:
    # A unit of the system has no XDG_RUNTIME_DIR; one of a user's systemd has, and so
    # have the terminals that it started.
    in_unit = "INVOCATION_ID" in os.environ and "XDG_RUNTIME_DIR" not in os.environ
    return os.geteuid() == 0 or in_unit


def _xdg(name: str, default: str) -> str:
    # A relative path there is to be ignored (XDG Base Directory Specification 0.8).
    named = os.environ.get(name, "")
    return named if named.startswith("/") else os.path.join(os.path.expanduser("~"), default)
