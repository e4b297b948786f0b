"""The users' directories below the data directory: made where they are missing, and whose.

Where the daemon is root they are the tools' own account's. Any thread but for `ready`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping

from edged.config import UserEntry
from edged.errors import SandboxSetupError, StoreError
from edged.identity import LOCAL_USER
from edged.sandbox.account import Account, tool_account
from edged.store import make_directory

WRITABLE = ("home", "workspace", "files", "data")


class Homes:
    """The directories of all users."""

    def __init__(self, data: str, users: Mapping[str, str | UserEntry]) -> None:
        """Nothing is made yet.

        Args:
            data: the data directory.
            users: the configuration's.
        """
        self._data = data
        self._users = users
        self._prepared: set[str] = set()
        self._account: Account | None = None

    @property
    def account(self) -> Account:
        """Whom they belong to.

        Raises:
            SandboxSetupError: the daemon is root and there is no account for tools.
        """
        if self._account is None:
            self._account = tool_account()
        return self._account

    def of(self, user: str) -> str:
        """The directory of a user."""
        return os.path.join(self._data, user)

    def ready(self, user: str) -> None:
        """Make a user's directories where that was not done yet. Loop thread only.

        Raises:
            SandboxSetupError: something else is in the way.
        """
        if user not in self._prepared:
            # Without an account there is nobody whose directories they could be.
            _ = self.account
            self.prepare(user)
            self._prepared.add(user)

    def inodes(self, user: str) -> str:
        """The inodes of a user's directories, which are made where they are missing.

        Raises:
            SandboxSetupError: something else is in the way.
        """
        self.ready(user)
        try:
            return _inodes(self.of(user))
        except FileNotFoundError:
            # Removed by hand while the daemon runs.
            self.prepare(user)
            return _inodes(self.of(user))

    def prepare(self, user: str) -> None:
        """Make a user's directories; tools' own when the daemon is root.

        The group may write only where all of it is this one user: the user `local`
        of a board that maps nobody. Else a directory is its user's alone.

        Raises:
            SandboxSetupError: something else is in the way.
        """
        base, is_root = self.of(user), os.geteuid() == 0
        account = self._account if self._account is not None else _account_or_none()
        shared = user == LOCAL_USER and not self._users
        try:
            make_directory(base, 0o755)
            for name in (*WRITABLE, "tools"):
                path = os.path.join(base, name)
                try:
                    os.mkdir(path, 0o700)
                except FileExistsError:
                    found = os.lstat(path)
                    if not stat.S_ISDIR(found.st_mode):
                        reason = f"{path} is not a directory: move it away"
                        raise SandboxSetupError(reason) from None
                    if is_root and not shared and found.st_mode & 0o022:
                        # Made while the board mapped nobody.
                        os.chmod(path, 0o755 if name == "tools" else 0o700)
                    elif is_root and name == "tools" and found.st_mode & 0o022:
                        # No one may put another's tool in the place of root's.
                        os.chmod(path, stat.S_IMODE(found.st_mode) | stat.S_ISVTX)
                    if found.st_uid != 0 or name == "tools":
                        continue
                    # Root made it by hand: tools must be able to write there all the same.
                if not is_root or account is None:
                    continue
                if name == "tools":
                    owner = self._uid_of(user)
                    os.chown(path, owner, account.gid, follow_symlinks=False)
                    os.chmod(path, 0o3775 if shared else 0o755)
                else:
                    os.chown(path, account.uid, account.gid, follow_symlinks=False)
                    os.chmod(path, 0o2770 if shared else 0o700)
        except (OSError, StoreError) as error:
            raise SandboxSetupError(f"{base}: {error}: check its permissions") from None

    def _uid_of(self, user: str) -> int:
        """Who may put tools into a user's directory: the mapped uid, else root."""
        for uid, entry in self._users.items():
            if user == (entry if isinstance(entry, str) else entry.user):
                return int(uid)
        return 0


def _account_or_none() -> Account | None:
    try:
        return tool_account()
    except SandboxSetupError:
        return None


def _inodes(base: str) -> str:
    names = (*WRITABLE, "tools")
    found = [os.lstat(os.path.join(base, name)).st_ino for name in names]
    # Made with the first skill, of the user's own and of everyone's.
    found += [_inode(os.path.join(at, "skills")) for at in (base, os.path.dirname(base))]
    return ",".join(map(str, found))


def _inode(path: str) -> int:
    try:
        return os.lstat(path).st_ino
    except OSError:
        return 0
