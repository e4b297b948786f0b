"""`requestState`: what a client carries from one round of a request to the next, sealed.

Sans I/O. What comes back is the word of a stranger until its HMAC, its caller, its age and
the request that it belongs to are found right. It is signed, not encrypted: a client may
read what it said itself. It comes back once, for what a person agreed to is done once.
Source: MCP 2026-07-28, multi round-trip requests.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
from typing import Any

import msgspec

from edged.errors import Fault, InvalidArgumentsError
from edged.identity import Caller

STATE_S = 600.0
"""How long a person may take to answer."""

STATE_MAX = 256 << 10
"""Characters of a state."""

OPEN_MAX = 256
"""States of one caller that may still come back; the oldest goes first."""

Open = dict[tuple[str, str, str], dict[str, None]]
"""The seals of states that may come back, by whose they are."""

_encode = msgspec.json.Encoder(order="sorted").encode


class State(msgspec.Struct, frozen=True):
    """What is carried.

    Attributes:
        user: with `role` and `peer`, whose request it is.
        role: see `user`.
        peer: see `user`.
        until: seconds of the daemon's monotonic clock.
        request: digest of the request: its method and what it is about.
        asked: digests of the questions that are open, by key.
        answers: what was answered in the rounds before, by key.
        answered: digests of the questions that those answer.
    """

    user: str
    role: str
    peer: str
    until: float
    request: str
    asked: dict[str, str]
    answers: dict[str, Any]
    answered: dict[str, str]


def digest(*parts: Any) -> str:
    """Names JSON values, whatever the order of their keys."""
    return hashlib.sha256(_encode(parts)).hexdigest()


def seal(key: bytes, state: State, opened: Open) -> str:
    """A state as text that only the holder of `key` can make, noted as one to come back."""
    data = _encode(state)
    mac = _text(hmac.digest(key, data, "sha256"))
    mine = opened.setdefault((state.user, state.role, state.peer), {})
    mine[mac] = None
    if len(mine) > OPEN_MAX:
        del mine[next(iter(mine))]
    return f"{mac}.{_text(data)}"


def unseal(key: bytes, text: str, opened: Open, caller: Caller, request: str, now: float) -> State:
    """The state in a text, which does not come back again.

    Args:
        key: that it was sealed with.
        text: as the client sent it.
        opened: those that may come back.
        caller: who sent it.
        request: digest of the request that it came with.
        now: the daemon's monotonic clock.

    Raises:
        InvalidArgumentsError: it is not one of ours, too old, of another request, or was
            here before.
    """
    mac, _, data = text.partition(".")
    try:
        if len(text) > STATE_MAX:
            raise ValueError
        raw = _bytes(data)
        if not hmac.compare_digest(_bytes(mac), hmac.digest(key, raw, "sha256")):
            raise ValueError
        state = msgspec.json.decode(raw, type=State)
    except (ValueError, msgspec.DecodeError):
        raise _refused("is not one that this server gave") from None
    if (state.user, state.role, state.peer) != (caller.user, caller.role, caller.peer):
        raise _refused("was given to another caller")
    if state.request != request:
        raise _refused("belongs to another request")
    if now > state.until:
        raise _refused("is too old: send the request without it, and answer again")
    whose = state.user, state.role, state.peer
    mine = opened.get(whose, {})
    if mac not in mine:
        raise _refused("was used already: send the request without it, and answer again")
    del mine[mac]
    if not mine:
        del opened[whose]
    return state


def _refused(reason: str) -> InvalidArgumentsError:
    return InvalidArgumentsError([Fault("requestState", reason)])


def _text(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode()


def _bytes(text: str) -> bytes:
    return binascii.a2b_base64(text, strict_mode=True)
