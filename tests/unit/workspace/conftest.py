"""Callers' files below a temporary data directory, with the real kernel under them."""

import os

import pytest

from edged.events import Events
from edged.identity import Caller
from edged.policy import Policy
from edged.sections import Files
from edged.store import Store
from edged.testing.clock import FakeClock
from edged.workspace import Workspace
from edged.workspace.homes import Homes

ADA = Caller("ada@example.org", "agent", "s1", "unix", "uid 1000")
OWNER = Caller("local", "owner", "", "unix", "uid 0")


class Place:
    """A data directory, a directory beside it, and what is written there as tools would."""

    ada, owner = ADA, OWNER

    def __init__(self, folder, **settings):
        self.data, self.outside = folder / "data", folder / "outside"
        self.data.mkdir(parents=True)
        self.outside.mkdir()
        (self.outside / "secret").write_text("secret")
        self.clock = FakeClock()
        self.events = Events(self.clock)
        self.store = Store(str(self.data / "state"))
        self.policy = self.new_policy()
        self.homes = Homes(str(self.data), {})
        self.workspace = Workspace(
            str(self.data),
            self.homes,
            self.policy,
            Files(**settings),
            media=self.media,
            private=(str(self.data),),
        )
        self.homes.ready(ADA.user)
        self.own = self.data / ADA.user / "workspace"
        self.media_files = {}

    def new_policy(self):
        return Policy(self.store, self.clock, self.events, private=(str(self.data),))

    def media(self, caller, reference):
        return self.media_files[reference]

    def lay(self, name, content=b"", mode=0o644):
        """A file of the tools' account in the workspace."""
        path = self.own / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(mode)
        self.give(path, *(one for one in path.parents if self.own in one.parents))
        return path

    def give(self, *paths):
        if os.geteuid() == 0:
            account = self.homes.account
            for path in paths:
                os.chown(path, account.uid, account.gid, follow_symlinks=False)

    def read(self, path, caller=ADA):
        fd = self.workspace.open(caller, caller.session, path, os.O_RDONLY)
        try:
            return os.read(fd, 1 << 16)
        finally:
            os.close(fd)


@pytest.fixture
def make(tmp_path):
    made = []

    def one(**settings):
        made.append(Place(tmp_path / str(len(made)), **settings))
        return made[-1]

    return one


@pytest.fixture
def place(make):
    return make()
