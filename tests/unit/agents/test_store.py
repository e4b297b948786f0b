"""Agents as files: what is written is read again, and nothing leaves the directory."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged import plugins
from edged.agents.store import AGENTS_MAX, SEEDS, Agent, Agents, Change, Creation, slug_of, written
from edged.clock import iso
from edged.errors import ConfigError, ExistsError, InvalidArgumentsError, NotFoundError
from edged.testing import FakeClock

BOB = "bob@example.org"


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def agents(tmp_path, clock):
    return Agents(str(tmp_path), clock)


def make(agents, name="Researcher", **more):
    facts = {"system_prompt": "You research.", "model": "small"} | more
    return agents.create(BOB, Creation(name, **facts))


def lay(agents, file, text):
    os.makedirs(agents.directory(BOB), exist_ok=True)
    path = os.path.join(agents.directory(BOB), file)
    with open(path, "w", encoding="utf-8", newline="") as out:
        out.write(text)
    return path


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("researcher", "researcher"),
        # Names that the best-known implementation gives no slug at all, so that they collide
        # (picoclaw.md, section 14).
        ("Bot 2.0", "bot-2-0"),
        ("My_Agent", "my-agent"),
        ("Café", "cafe"),
        ("../../etc/passwd", "etc-passwd"),
        ("x" * 100, "x" * 64),
        ("日本", ""),
    ],
)
def test_a_slug_is_what_is_left_of_a_name(name, slug):
    assert slug_of(name) == slug


def test_what_is_created_is_read_again(agents, clock):
    made = make(agents, description="Looks things up", tool_permissions=["web_search", "mcp_*"])
    assert made == agents.get(BOB, "researcher")
    assert (made.slug, made.status, made.created_at) == ("researcher", "enabled", made.updated_at)
    assert made.tool_permissions == ("web_search", "mcp_*")
    assert agents.listing(BOB).agents == (made,)


def test_names_that_give_one_slug_do_not_replace_each_other(agents):
    make(agents, "Café")
    with pytest.raises(ExistsError, match="'cafe', named 'Café', already"):
        make(agents, "cafe")


def test_a_name_without_a_slug_is_refused(agents):
    with pytest.raises(InvalidArgumentsError, match="name: needs a letter"):
        make(agents, "日本")


@pytest.mark.parametrize(
    "slug", ["../x", "a/b", "", ".", "-a", "a-", "A", "a" * 65, "a\n", "a\0b"]
)
def test_what_is_no_slug_names_no_file(agents, slug):
    """picoclaw.md, section 14: a slug of the query was joined to the path as it came."""
    for act in (agents.get, agents.delete):
        with pytest.raises(InvalidArgumentsError, match="slug"):
            act(BOB, slug)
    with pytest.raises(InvalidArgumentsError, match="slug"):
        agents.update(BOB, slug, Change(name="x"))


def test_an_agent_that_is_not_there_is_not_found(agents):
    for act in (agents.get, agents.delete):
        with pytest.raises(NotFoundError, match="no agent 'nobody'"):
            act(BOB, "nobody")


def test_a_change_keeps_the_slug_and_what_is_not_named(agents, clock):
    before = make(agents)
    clock.advance(60)
    after = agents.update(BOB, "researcher", Change(name="Scholar", tool_permissions=["sensor"]))
    assert after == msgspec.structs.replace(
        before, name="Scholar", tool_permissions=("sensor",), updated_at=after.updated_at
    )
    assert after.updated_at > before.updated_at
    assert os.listdir(agents.directory(BOB)) == ["researcher.md"]


BY_HAND = """\
---
# Mine.
name:   Watch   # at night
status: enabled # for now
tool_permissions:
  - sensor   # reads
model: 'small'
---

You watch.
status: enabled
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("text", "off"),
    [
        (BY_HAND, BY_HAND.replace("status: enabled #", "status: disabled #")),
        (
            BY_HAND.replace("status: enabled # for now\n", ""),
            BY_HAND.replace("status: enabled # for now\n", "").replace(
                "'small'\n", "'small'\nstatus: disabled\n"
            ),
        ),
        ("\ufeff---\nname: a\n---\nHi", "\ufeff---\nname: a\nstatus: disabled\n---\nHi"),
    ],
    ids=["in its place", "none yet", "no end"],
)
def test_a_switch_changes_its_line_and_keeps_all_else_to_the_byte(agents, clock, text, off, end):
    """What a person wrote by hand, comments too, is theirs."""
    path = Path(lay(agents, "watch.md", text.replace("\n", end)))
    before = agents.get(BOB, "watch")
    clock.advance(60)
    after = agents.update(BOB, "watch", Change(status="disabled"))
    assert path.read_bytes().decode() == off.replace("\n", end)
    assert (after.status, after.system_prompt) == ("disabled", before.system_prompt)
    assert after.updated_at == iso(clock.now())
    agents.update(BOB, "watch", Change(status="enabled"))
    on = off.replace("status: disabled", "status: enabled")
    assert path.read_bytes().decode() == on.replace("\n", end)


@pytest.mark.parametrize(
    "front",
    ["{name: Watch, model: x}", "name: Watch\nstatus:\n  enabled", '"status": enabled\nname: a'],
)
def test_a_switch_of_a_file_whose_status_is_in_no_line_holds_too(agents, front):
    lay(agents, "watch.md", f"---\n{front}\n---\nHi")
    assert agents.update(BOB, "watch", Change(status="disabled")).status == "disabled"
    assert agents.get(BOB, "watch").system_prompt == "Hi"


def test_a_change_that_is_wrong_changes_nothing(agents):
    before = make(agents)
    with pytest.raises(InvalidArgumentsError, match=r"tool_permissions\[1\]: 'rm -rf' is no"):
        agents.update(BOB, "researcher", Change(tool_permissions=["sensor", "rm -rf"]))
    with pytest.raises(InvalidArgumentsError, match="name: must be one line"):
        agents.update(BOB, "researcher", Change(name="a\nmodel: other"))
    with pytest.raises(InvalidArgumentsError, match="name: is required"):
        agents.update(BOB, "researcher", Change(name="  "))
    assert agents.get(BOB, "researcher") == before


def test_a_removed_agent_is_gone(agents):
    make(agents)
    agents.delete(BOB, "researcher")
    assert agents.listing(BOB).agents == ()


def test_edits_by_hand_are_seen(agents):
    make(agents)
    path = os.path.join(agents.directory(BOB), "researcher.md")
    with open(path, encoding="utf-8") as file:
        text = file.read().replace("You research.", "You look things up.")
    before = agents.get(BOB, "researcher")
    lay(agents, "researcher.md", text)
    os.utime(path, (2e9, 2e9))
    found = agents.get(BOB, "researcher")
    assert found.system_prompt == "You look things up."
    assert (found.created_at, found.updated_at) == (before.created_at, "2033-05-18T03:33:20.000Z")


def test_a_prompt_of_another_system_keeps_its_line_ends(agents):
    """Both as it is given, and in a file whose every line ends as that system's do."""
    prompt = "One.\r\nTwo.\r\n\r\n---\r\nThree.\n"
    assert make(agents, system_prompt=prompt).system_prompt == prompt
    text = "\ufeff---\r\nname: other\r\n---\r\n\r\nOne.\r\nTwo.\r\n"
    lay(agents, "other.md", text)
    assert agents.get(BOB, "other").system_prompt == "One.\r\nTwo."


@pytest.mark.parametrize("name", ["a\x85b", "a\u2028b", "a\uffffb", "a\x9bb"])
def test_a_name_that_no_file_can_have_is_refused(agents, name):
    with pytest.raises(InvalidArgumentsError, match="name: must be one line"):
        make(agents, name)


def test_agents_that_come_with_the_daemon_are_agents(tmp_path):
    """`seed/agents`: each is read, and may call tools that there are."""
    seeds = Path(__file__).parents[3] / "seed" / "agents"
    found = Agents(str(tmp_path), FakeClock(), str(seeds)).listing(BOB)
    assert found.problems == ()
    assert [f"{one.slug}.md" for one in found.agents] == sorted(os.listdir(seeds))
    there = {
        tool.name
        for name in plugins.names("edged.tools")
        for tool in plugins.load("edged.tools", name).TOOLS
    }
    there |= set(os.listdir(seeds.parent / "tools"))
    for one in found.agents:
        assert set(one.tool_permissions) <= there
        assert one.description


def test_a_file_of_another_users_is_not_listed(agents):
    make(agents)
    assert agents.listing("local").agents == ()


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("a.md", "no front matter", "the first line must be `---` alone"),
        ("a.md", "---\nname: a\n---\n", "line 4: the prompt below the front matter is empty"),
        ("a.md", "---\nname: a\nslug: b\n---\nHi", "slug: is 'b' and the file a.md"),
        ("a.md", "---\nname: a\nstatus: on\n---\nHi", "expected one of enabled, disabled"),
        ("a.md", "---\nname: a\nmodle: x\n---\nHi", "did you mean 'model'?"),
        ("A b.md", "---\nname: a\n---\nHi", "rename it"),
    ],
)
def test_a_file_that_is_no_agent_is_told_of_and_kept(agents, file, text, reason):
    path = lay(agents, file, text)
    found = agents.listing(BOB)
    assert found.agents == ()
    assert [one.file for one in found.problems] == [path]
    assert reason in found.problems[0].reason
    assert os.path.exists(path)


def test_a_link_is_not_followed(agents, tmp_path):
    secret = tmp_path / "secret.md"
    secret.write_text("---\nname: a\n---\nsecret")
    os.makedirs(agents.directory(BOB))
    os.symlink(secret, os.path.join(agents.directory(BOB), "a.md"))
    os.mkfifo(os.path.join(agents.directory(BOB), "b.md"))
    found = agents.listing(BOB)
    assert found.agents == ()
    assert [one.reason for one in found.problems] == [
        "cannot be read: Too many levels of symbolic links",
        "is no file",
    ]
    with pytest.raises(ConfigError):
        agents.get(BOB, "a")


def test_the_document_of_the_specification_is_taken(agents):
    content = (
        "---\nname: researcher\ndescription: Research assistant agent\n"
        "model: claude-3-5-sonnet\nslug: researcher\n---\n\nYou are a research assistant…\n"
    )
    made = agents.take(BOB, content)
    assert (made.slug, made.model, made.system_prompt) == (
        "researcher",
        "claude-3-5-sonnet",
        "You are a research assistant…",
    )
    assert made.description == "Research assistant agent"
    with pytest.raises(ExistsError):
        agents.take(BOB, content)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (" \n", "content: is empty"),
        ("just text", "the first line must be `---`"),
        ("---\nmodel: x\n---\nHi", "name"),
        ("---\nname: a\nslug: ../a\n---\nHi", "slug: must be a-z"),
        ("---\nname: ???\n---\nHi", r"name: '\?\?\?' has no letter"),
    ],
)
def test_a_text_that_is_no_agent_is_not_taken(agents, content, reason):
    with pytest.raises(InvalidArgumentsError, match=reason):
        agents.take(BOB, content)
    assert agents.listing(BOB).agents == ()


def test_there_is_an_end_of_agents(agents):
    os.makedirs(agents.directory(BOB))
    for number in range(AGENTS_MAX):
        lay(agents, f"a{number}.md", "")
    with pytest.raises(ExistsError, match="200 agents"):
        make(agents)


def test_a_directory_that_cannot_be_read_is_said(agents):
    os.makedirs(os.path.dirname(agents.directory(BOB)))
    with open(agents.directory(BOB), "w", encoding="utf-8"):
        pass
    from edged.errors import StoreError

    with pytest.raises(StoreError, match="cannot read .*agents: Not a directory"):
        agents.listing(BOB)


class TestSeeds:
    @pytest.fixture
    def seeds(self, tmp_path):
        place = tmp_path / "seeds"
        place.mkdir()
        (place / "watcher.md").write_text("---\nname: watcher\n---\nLook.")
        return place

    def agents(self, tmp_path, seeds):
        return Agents(str(tmp_path), FakeClock(), str(seeds))

    def prompt(self, tmp_path, seeds):
        return {a.slug: a.system_prompt for a in self.agents(tmp_path, seeds).listing(BOB).agents}

    def test_each_user_has_the_daemons_own(self, tmp_path, seeds):
        assert self.prompt(tmp_path, seeds) == {"watcher": "Look."}

    def test_newer_ones_replace_what_nobody_changed(self, tmp_path, seeds):
        self.prompt(tmp_path, seeds)
        (seeds / "watcher.md").write_text("---\nname: watcher\n---\nLook twice.")
        assert self.prompt(tmp_path, seeds) == {"watcher": "Look twice."}

    def test_what_a_person_changed_or_removed_stays(self, tmp_path, seeds):
        agents = self.agents(tmp_path, seeds)
        agents.update(BOB, "watcher", Change(system_prompt="Mine."))
        (seeds / "watcher.md").write_text("---\nname: watcher\n---\nLook twice.")
        assert self.prompt(tmp_path, seeds) == {"watcher": "Mine."}
        self.agents(tmp_path, seeds).delete(BOB, "watcher")
        (seeds / "watcher.md").write_text("---\nname: watcher\n---\nLook again.")
        assert self.prompt(tmp_path, seeds) == {}

    def test_what_was_given_when_the_power_went_is_replaced_too(self, tmp_path, seeds):
        """The file is there, and the note that it was given is not."""
        self.prompt(tmp_path, seeds)
        (tmp_path / BOB / "agents" / SEEDS).unlink()
        self.prompt(tmp_path, seeds)
        (seeds / "watcher.md").write_text("---\nname: watcher\n---\nLook twice.")
        assert self.prompt(tmp_path, seeds) == {"watcher": "Look twice."}

    def test_where_they_cannot_be_written_the_others_are_told(self, tmp_path, seeds, capfd):
        agents = Agents(str(tmp_path), FakeClock())
        agents.create(BOB, Creation("mine", "Mine.", "small"))
        # As a disk that is full or read-only: the note has a directory in its way.
        (tmp_path / BOB / "agents" / SEEDS).mkdir()
        assert self.prompt(tmp_path, seeds) == {"mine": "Mine.", "watcher": "Look."}
        assert "the agents that came with edged: cannot write" in capfd.readouterr().err

    def test_one_that_a_person_had_before_stays(self, tmp_path, seeds):
        agents = Agents(str(tmp_path), FakeClock())
        agents.create(BOB, Creation("watcher", "Mine.", "small"))
        assert self.prompt(tmp_path, seeds) == {"watcher": "Mine."}


LINE = st.text(
    st.characters(
        blacklist_categories=("Cs", "Cc"), blacklist_characters="\u2028\u2029\ufffe\uffff"
    ),
    min_size=1,
    max_size=40,
).filter(lambda text: text.strip())
PROMPT = st.text(
    st.one_of(
        st.sampled_from("\r\n-: #'\"{}[]&*!|>%@`\t\\\0\ufeff"),
        st.characters(blacklist_categories=("Cs",)),
    ),
    min_size=1,
).filter(lambda text: text.strip())


@given(LINE, LINE, PROMPT)
def test_any_agent_is_read_as_it_was_written(tmp_path_factory, name, description, prompt):
    """Quotes, colons, `on`, `010`, fences and empty lines in a prompt are a prompt's text."""
    agents = Agents(str(tmp_path_factory.mktemp("data")), FakeClock())
    agent = Agent(
        "a", name, description, prompt, "on", ("*",), "disabled", "2026-01-01", "2026-01-02"
    )
    os.makedirs(agents.directory(BOB))
    with open(os.path.join(agents.directory(BOB), "a.md"), "wb") as file:
        file.write(written(agent))
    found = agents.get(BOB, "a")
    assert found == msgspec.structs.replace(agent, updated_at=found.updated_at)
