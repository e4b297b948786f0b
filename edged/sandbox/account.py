"""The account that tools run as; never the host's uid 0.

Knows no sandbox: it looks one user and one group up.
"""

from __future__ import annotations

import grp
import os
import pwd
from typing import NamedTuple

from edged.errors import SandboxSetupError

TOOL_USER = "edged-tool"
TOOL_GROUP = "edged"

REMEDY = (
    f"create them: groupadd --system {TOOL_GROUP}; useradd --system --user-group"
    f" --no-create-home --shell /usr/sbin/nologin {TOOL_USER}"
)


class Account(NamedTuple):
    """Whom a sandbox is started as; `uid` is never 0."""

    uid: int
    gid: int
    name: str


def tool_account(
    euid: int | None = None, user: str = TOOL_USER, group: str = TOOL_GROUP
) -> Account:
    """The daemon's own account, or the tools' own when the daemon is root.

    Args:
        euid: whose tools; this process's when None.
        user: whom root's tools run as.
        group: its group, which people who read the users' files are in.

    Raises:
        SandboxSetupError: root, and that user or group is missing.
    """
    euid = os.geteuid() if euid is None else euid
    if euid != 0:
        return Account(euid, os.getegid(), _name(euid))
    try:
        uid, gid = pwd.getpwnam(user).pw_uid, grp.getgrnam(group).gr_gid
    except KeyError as error:
        raise SandboxSetupError(
            f"edged runs as root and its tools must not: {error.args[0]}; {REMEDY}"
        ) from None
    if uid == 0:
        raise SandboxSetupError(f"the user {user} has uid 0, the host's root; {REMEDY}")
    return Account(uid, gid, user)


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
