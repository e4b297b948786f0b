"""What one user of a board may have of another's: nothing, the owner's secrets least of all."""

import os
import stat
import subprocess

import pytest

BOB, EVE = "bob@example.org", "eve@example.org"
CONFIG = f"""
users: {{12002: {BOB}, 12003: {{user: {EVE}, role: owner}}}}
resources: {{apify: {{token: a-resource-secret}}}}
tools: {{soil: {{env: {{SOIL_KEY: a-soil-secret}}}}}}
sandbox: {{warm_memory: 0}}
"""
MANIFEST = """---
name: soil
description: Shows what it was given.
version: 1
language: bash
env: [SOIL_KEY, OFFICER_APIFY_TOKEN]
resources: [apify]
---
"""
SOURCE = 'echo "$SOIL_KEY $OFFICER_APIFY_TOKEN $OFFICER_RESOURCES"\n'
SHOWN = 'a-soil-secret a-resource-secret {"apify":{"token":"a-resource-secret"}}'


def lay(daemon):
    for user in ("local", BOB, EVE):
        daemon.lay("soil", {"TOOL.md": MANIFEST, "index.sh": SOURCE}, user=user)


@pytest.fixture(scope="module")
def daemon(serving):
    with serving(lay, CONFIG) as running:
        yield running


def call_as(daemon, user):
    done = daemon.cli("token", "add", os.urandom(4).hex(), "--user", user)
    _, result = daemon.http("/api/tools/soil/call", {}, token=done.stdout.strip())
    return result["for_llm"]


def test_owners_secrets_do_not_follow_a_name(daemon):
    """A tool's name is anyone's to take: an agent's own tool gets nothing of the owner's."""
    assert call_as(daemon, BOB).strip() == "{}"
    assert call_as(daemon, EVE) == SHOWN
    assert daemon.call("soil").for_llm == SHOWN


def test_directories_of_mapped_users_are_their_own(daemon):
    """Who may connect shares a group: it must not open the users' directories."""
    call_as(daemon, BOB)
    daemon.call("soil")
    for user in ("local", BOB):
        for name in ("home", "workspace", "files", "data"):
            mode = stat.S_IMODE((daemon.data / user / name).stat().st_mode)
            assert mode & 0o077 == 0, (user, name, oct(mode))
        tools = (daemon.data / user / "tools").stat()
        assert stat.S_IMODE(tools.st_mode) & 0o022 == 0
    if os.geteuid() == 0:
        assert (daemon.data / BOB / "tools").stat().st_uid in (0, 12002)


def test_one_user_of_a_board_shares_with_the_group(serving):
    """A board that maps nobody has the user `local` alone; its people share a group."""

    def one(daemon):
        daemon.lay("soil", {"TOOL.md": MANIFEST, "index.sh": SOURCE})

    with serving(one, "sandbox: {warm_memory: 0}\n") as daemon:
        daemon.call("soil")
        mode = stat.S_IMODE((daemon.data / "local" / "workspace").stat().st_mode)
        assert mode == (0o2770 if os.geteuid() == 0 else 0o700)


# A board that was shared, and one that is


AGENT_UID = 12002
ROOT = os.geteuid() == 0
"""Who may put tools of `local` beside root's; a plain user's data are that user's alone."""
INNER = "---\nname: echo_me\ndescription: Calls.\nversion: 1\nlanguage: bash\ncalls: [echo]\n---\n"


def given_away(daemon, name, files):
    """A tool of `local` as a member of the group made it; only root can give files away."""
    place = daemon.lay(name, files)
    if ROOT:
        for path in (place, *place.iterdir()):
            os.chown(path, AGENT_UID, -1)
    return place


@pytest.fixture(scope="module")
def shared(serving):
    """A board that maps nobody, and holds secrets of its owner."""

    def tools(daemon):
        daemon.lay("roots", {"TOOL.md": MANIFEST.replace("soil", "roots"), "index.sh": SOURCE})
        given_away(
            daemon, "soil", {"TOOL.md": MANIFEST, "index.sh": SOURCE + "echo SOIL_KEY?; false"}
        )
        given_away(daemon, "echo_me", {"TOOL.md": INNER, "index.sh": "edged-call echo text=x"})
        (daemon.data / "local" / "tools").chmod(0o2775)

    config = CONFIG.replace("users:", "#users:").replace(
        "tools: {soil:",
        "tools: {echo: {enabled: true}, roots: {env: {SOIL_KEY: a-soil-secret}}, soil:",
    )
    with serving(tools, config) as running:
        yield running


def test_owners_secrets_go_to_no_tool_that_an_agent_can_change(shared):
    """Nor where all share the user `local`: its owner made `roots`, someone else `soil`."""
    assert shared.call("roots").for_llm == SHOWN
    taken = shared.call("soil").for_llm
    if ROOT:
        place = shared.data / "local" / "tools" / "soil"
        assert "secret" not in taken
        assert f"others than root can change {place}: copy it with cp -r {place} " in taken
    else:
        assert taken.startswith(SHOWN)


def test_no_tool_takes_the_place_of_roots(shared):
    """Its files would be another's when they are loaded, and root's when they were looked at."""
    tools = shared.data / "local" / "tools"
    shared.call("roots")
    if ROOT:
        done = subprocess.run(
            ["mkdir mine && mv -T roots gone"],
            shell=True,
            cwd=tools,
            user=AGENT_UID,
            group=tools.stat().st_gid,
            extra_groups=[],
            capture_output=True,
            text=True,
        )
        assert "cannot move 'roots' to 'gone': Operation not permitted" in done.stderr
        assert (tools / "mine").is_dir()


def test_what_an_agent_made_calls_as_an_agent(shared):
    """Who calls it may be root, whose rights it must not have for that."""
    assert shared.call("echo_me").for_llm == "x"
    records = shared.ask("edged/log", limit=2)["records"]
    roles = {record["tool"]: record["role"] for record in records}
    assert roles == {"echo_me": "owner", "echo": "agent" if ROOT else "owner"}


def test_what_others_made_before_users_were_mapped_is_blocked(serving):
    """Else the tool, its files still an agent's, would be given what root's calls have."""

    def tools(daemon):
        given_away(daemon, "soil", {"TOOL.md": MANIFEST, "index.sh": SOURCE})
        daemon.lay("roots", {"TOOL.md": MANIFEST.replace("soil", "roots"), "index.sh": "echo x"})
        (daemon.data / "local" / "tools").chmod(0o2775)

    with serving(tools, CONFIG.replace("users:", "#users:")) as daemon:
        config = daemon.config.read_text()
        daemon.call("soil")
        daemon.stop()
        daemon.config.write_text(config.replace("#users:", "users:"))
        daemon.start()
        # At once, and not with the first call of `local`; a user's daemon shares with nobody.
        for name in ("home", "workspace", "files", "data", "tools") if ROOT else ():
            mode = stat.S_IMODE((daemon.data / "local" / name).stat().st_mode)
            assert mode & 0o022 == 0, (name, oct(mode))
        assert daemon.call("roots").for_llm.strip() == "x"
        place = daemon.data / "local" / "tools" / "soil"
        if ROOT:
            agents = os.open(place / "index.sh", os.O_WRONLY | os.O_APPEND)
            refused = daemon.edged("call", "soil", "--socket", daemon.socket).stderr
            assert f"`users:` maps people, and others than root can change {place}" in refused
            copy = f"cp -r {place} {place}.new && chmod -R go-w {place}.new"
            replace = f"rm -r {place} && mv {place}.new {place}"
            assert f": copy it with {copy}, look the copy over, then {replace}" in refused
            for remedy in (copy, replace):
                subprocess.run(remedy, shell=True, check=True)
            # Who had a file of it open writes to what is gone.
            os.write(agents, b"echo and-mine\n")
            os.close(agents)
        assert daemon.call("soil").for_llm == SHOWN
