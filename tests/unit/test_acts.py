"""What owners set at run time, part by part (contract, section 3)."""

import pytest

from edged.acts import Held, McpServers, Switches, reset
from edged.errors import ExistsError, NotFoundError, StoreError
from edged.overrides import overrides
from edged.sections import McpServer
from edged.store import Store


class Numbers:
    """Another part's settings."""

    def __init__(self, **held):
        self.kept = {f"tools.web.{key}": value for key, value in held.items()}

    def held(self):
        return {key: Held(value, "numbers.json") for key, value in self.kept.items()}

    def drop(self, keys):
        self.kept = {key: value for key, value in self.kept.items() if key not in keys}


@pytest.fixture
def store(tmp_path):
    made = Store(str(tmp_path / "state"))
    made.save(Switches.FILE, {"web": False, "cron": True, "mcp.discovery.use_regex": False})
    return made


def test_a_key_is_dropped_with_all_that_is_below_it_in_every_part(store):
    """One key of the configuration may be many parts'."""
    numbers = Numbers(provider="brave", proxy="")
    parts = [*overrides(store), numbers]
    assert reset(parts, "tools.web.proxy") == {"tools.web.proxy": ""}
    assert reset(parts, "tools.web") == {"tools.web.enabled": False, "tools.web.provider": "brave"}
    assert numbers.kept == {}
    kept = store.load(Switches.FILE, dict[str, bool], {})
    assert kept == {"cron": True, "mcp.discovery.use_regex": False}


def test_an_added_mcp_server_goes_by_its_own_name_alone(store):
    """A server is work to add: who resets a part of the configuration does not mean it."""
    servers = {
        "wiki": McpServer(url="http://wiki/mcp"),
        "dice": McpServer(command="python3", args=["dice.py", 6]),
    }
    store.save(McpServers.FILE, servers)
    gone = []
    parts = overrides(store, mcp_servers=gone.extend)
    for above in ("tools", "tools.mcp", "tools.mcp.servers"):
        with pytest.raises(ExistsError, match=rf"below {above} .*: dice, wiki: edged mcp-server"):
            reset(parts, above)
    assert store.load(McpServers.FILE, dict[str, McpServer], {}) == servers
    assert store.load(Switches.FILE, dict[str, bool], {})["cron"] is True
    with pytest.raises(NotFoundError, match=r"servers\.dice, tools\.mcp\.servers\.wiki, tools"):
        reset(parts, "tools.x")
    assert reset(parts, "tools.mcp.servers.dice") == {
        "tools.mcp.servers.dice": "python3 dice.py 6"
    }
    wiki = {"tools.mcp.servers.wiki": "http://wiki/mcp"}
    assert reset(parts, "tools.mcp.servers.wiki.url") == wiki
    assert gone == ["dice", "wiki"]
    assert reset(parts, "tools.web") == {"tools.web.enabled": False}


def test_the_beginning_of_a_name_is_not_its_key(store):
    """`tools.we` is not above `tools.web`."""
    with pytest.raises(NotFoundError, match=r"there is: tools\.cron\.enabled, tools\.mcp\."):
        reset(overrides(store), "tools.we")


def test_what_is_used_changes_after_what_is_stored(store, tmp_path, monkeypatch):
    """A full disk: nothing changed, and the daemon goes on as it was."""
    used = []
    switches = Switches(store, used.append)

    def full(*_):
        raise StoreError("cannot write: No space left on device")

    monkeypatch.setattr(store, "save", full)
    with pytest.raises(StoreError):
        reset([switches], "tools.cron")
    assert used == []
    file = str(tmp_path / "state" / "tool-switches.json")
    assert switches.held()["tools.cron.enabled"] == Held(True, file)
    monkeypatch.undo()
    reset([switches], "tools.cron")
    assert used == [{"web": False, "mcp.discovery.use_regex": False}]


def test_what_cannot_be_read_counts_for_nothing_and_stays(tmp_path):
    """It is the daemon's to set aside."""
    store = Store(str(tmp_path))
    (tmp_path / "tool-switches.json").write_text("{")
    assert Switches(store).held() == {}
    assert (tmp_path / "tool-switches.json").read_text() == "{"
