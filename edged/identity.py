"""Who is calling: user, role, session and the door that the call came by.

Knows no sockets: doors find out who is calling and build a `Caller`.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

Role = Literal["owner", "agent"]
Door = Literal["unix", "http", "stdio", "internal"]

LOCAL_USER = "local"
"""The user of unmapped local callers, of root and of the daemon's own uid."""

_EMAIL = r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}@[A-Za-z0-9.-]{1,190}"


def is_user(name: str) -> bool:
    """Whether a name may be a user: its directory lies beside the daemon's own."""
    return name == LOCAL_USER or re.fullmatch(_EMAIL, name) is not None


class Caller(msgspec.Struct, frozen=True, gc=False):
    """One identified caller; the same value for every call of a connection.

    Attributes:
        user: an e-mail identity, or `local`; names `DATA_PATH/<user>`.
        role: `owner` may manage, `agent` may call.
        session: scope of promotions and sessions (contract, section 4).
        door: where the call came in.
        peer: for people: `uid 1000`, `token kitchen`.
        channel: target of `message` and `send_file`, or empty.
        chat_id: likewise.
        allowed: names that a call from inside a tool may reach; None is no limit.
        depth: how many tools deep the call is made; 0 from a door.
    """

    user: str
    role: Role
    session: str
    door: Door
    peer: str = ""
    channel: str = ""
    chat_id: str = ""
    allowed: frozenset[str] | None = None
    depth: int = 0

    @property
    def is_owner(self) -> bool:
        """Whether the caller may manage the daemon."""
        return self.role == "owner"

    @property
    def who(self) -> str:
        """Whose calls and turns are counted together: a uid's or token's, else the user's.

        On a board that maps nobody all local uids are one user.
        """
        return self.peer or self.user
