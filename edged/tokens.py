"""HTTP tokens: each belongs to a user and a role; only their hashes are kept.

The first token is written to `DATA_PATH/token` (mode 0600) for the owner of the
board; `edged token add` shows a new one once. Loop thread only.
"""

from __future__ import annotations

import binascii
import hashlib
import os
from collections.abc import Callable
from hmac import compare_digest

import msgspec

from edged.clock import Clock, iso
from edged.errors import Fault, InvalidArgumentsError, NotFoundError
from edged.identity import LOCAL_USER, Role, is_user
from edged.store import Store, unlink, write_atomic

PREFIX = "edged_"
FIRST = "first"
"""Name of the token that the daemon makes by itself."""

FIRST_FILE = "token"
"""Below the data directory: its secret."""

MAKE_OWNER = "edged token add NAME --role owner"


class Token(msgspec.Struct, frozen=True):
    """One token without its secret."""

    name: str
    user: str
    role: Role
    created: str
    digest: str


def peer_of(name: str) -> str:
    """Whose what comes by a token is (`Caller.peer`)."""
    return f"token {name}"


class Tokens:
    """The tokens of one data directory."""

    def __init__(self, store: Store, data: str, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.first = os.path.join(data, FIRST_FILE)
        self.version = 0
        """Rises with each change."""
        self.on_revoke: list[Callable[[str], None]] = []
        """Told the name of a token that has ended: what goes on by it ends too."""
        self._tokens: dict[str, Token] = {t.name: t for t in store.load("tokens", list[Token], [])}

    def advice(self) -> str:
        """Where an owner finds a token, or how one is made."""
        if os.path.exists(self.first):
            return f"the owner's first token is in {self.first}"
        return f"an owner makes one: {MAKE_OWNER}"

    def ensure_first(self) -> None:
        """Make the owner's token where there is none yet."""
        if not self._tokens:
            secret = _new_secret()
            # The file first: after a crash between the two, the next start makes both anew.
            write_atomic(self.first, secret.encode() + b"\n")
            self._add(FIRST, LOCAL_USER, "owner", secret)

    def add(self, name: str, user: str, role: Role) -> str:
        """Make a token; returns its secret, which is not kept.

        Raises:
            InvalidArgumentsError: the name is taken or not a name, or the user is none.
            StoreError: nothing changed.
        """
        faults = []
        if not name or len(name) > 64 or not name.isprintable():
            faults.append(Fault("name", "must be 1 to 64 printable characters"))
        elif name in self._tokens:
            faults.append(Fault("name", f"a token named {name!r} exists"))
        if not is_user(user):
            faults.append(Fault("user", "must be an e-mail identity such as ada@example.org"))
        if faults:
            raise InvalidArgumentsError(faults)
        secret = _new_secret()
        self._add(name, user, role, secret)
        return secret

    def _add(self, name: str, user: str, role: Role, secret: str) -> None:
        token = Token(name, user, role, iso(self._clock.now()), _digest(secret))
        self._save({**self._tokens, name: token})

    def revoke(self, name: str) -> None:
        """End a token.

        Raises:
            NotFoundError: no such token.
            StoreError: nothing changed.
        """
        if name not in self._tokens:
            known = ", ".join(self._tokens) or "none"
            raise NotFoundError(f"no token named {name!r}; there are: {known}")
        self._save({k: t for k, t in self._tokens.items() if k != name})
        if name == FIRST:
            # Nobody should go on trying a secret that is none any more.
            unlink(self.first)
        for tell in self.on_revoke:
            tell(name)

    def rows(self) -> list[Token]:
        """All tokens, by name."""
        return [self._tokens[name] for name in sorted(self._tokens)]

    def find(self, secret: str) -> Token | None:
        """The token with this secret; takes the same time for any wrong one."""
        digest = _digest(secret)
        found = None
        for token in self._tokens.values():
            if compare_digest(token.digest, digest):
                found = token
        return found

    def _save(self, tokens: dict[str, Token]) -> None:
        self._store.save("tokens", list(tokens.values()))
        self._tokens = tokens
        self.version += 1


def _new_secret() -> str:
    return PREFIX + binascii.hexlify(os.urandom(24)).decode()


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
