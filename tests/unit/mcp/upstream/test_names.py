"""What the tools of other servers are called here."""

import re

from hypothesis import given
from hypothesis import strategies as st

from edged.mcp.upstream.names import published

SERVERS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}", fullmatch=True)


def test_plain_names_stay_readable():
    """facts/picoclaw.md, section 11: mcp_{server}_{tool}."""
    assert published("files", "read_file", ["files"]) == "mcp_files_read_file"
    assert published("every", "get-sum", ["every"]) == "mcp_every_get-sum"


@given(SERVERS, st.text(max_size=200))
def test_every_name_is_safe_and_short(server, tool):
    """facts/mcp.md, fault 30: at most 40 of A-Za-z0-9_-."""
    name = published(server, tool, [server])
    assert re.fullmatch(r"mcp_[A-Za-z0-9_-]{1,36}", name)
    assert name == published(server, tool, [server])


@given(
    st.lists(st.tuples(SERVERS, st.text(max_size=60)), min_size=2, max_size=2, unique=True),
    st.lists(SERVERS, max_size=3),
)
def test_two_tools_never_share_a_name(tools, others):
    servers = [server for server, _ in tools] + others
    names = [published(server, tool, servers) for server, tool in tools]
    assert names[0] != names[1]


def test_names_that_would_be_the_same_are_told_apart():
    """The longer server's name wins; cutting and replacing leaves a mark."""
    servers = ["a", "a_b"]
    assert published("a_b", "c", servers) == "mcp_a_b_c"
    assert published("a", "b_c", servers).startswith("mcp_a_b_c_")
    assert published("a", "x.y", servers) != published("a", "x y", servers)
    assert published("a", "t" * 60, servers) != published("a", "t" * 61, servers)
