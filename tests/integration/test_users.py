"""What one user of a board may have of another's: nothing, the owner's secrets least of all."""

import os
import stat

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
