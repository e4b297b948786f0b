"""Talking to registries: busy ones, liars and those that never end."""

import gzip

import pytest

from edged.errors import DeniedError, RateLimitedError, RemoteProtocolError, StoreError
from edged.skills.client import DOWNLOAD_MAX, TRIES, Client, Server
from tests.unit.skills.conftest import Site


def at(site):
    """The registry at a site, as an owner configures it."""
    return Server("hub", site.url)


@pytest.fixture
async def client(clock, waits):
    async with Client(clock, sleep=waits, jitter=lambda: 0.5) as made:
        yield made


async def test_busy_server_is_asked_again_after_what_it_asks_for(client, site, waits):
    """Picoclaw #2135, #1134: a 429 ended the install."""
    site.set("/x", b"slow down", 429, Retry_After="7")
    site.then("/x", b"fine")
    assert (await client.get(at(site), f"{site.url}/x")).body == b"fine"
    assert waits == [7 + 0.5 * 1.0]


@pytest.mark.parametrize("status", [500, 502, 503, 504])
async def test_server_in_trouble_is_asked_again_with_growing_waits(client, site, waits, status):
    site.set("/x", b"oops", status)
    with pytest.raises(RemoteProtocolError, match=f"hub: HTTP {status}: oops"):
        await client.get(at(site), f"{site.url}/x")
    assert len(site.requests) == TRIES == len(waits) + 1
    assert waits == sorted(waits)


@pytest.mark.parametrize(
    ("headers", "again"),
    [
        ({"Retry_After": "600"}, "600 s"),
        ({"Retry_After": "Thu, 01 Jan 2037 00:10:00 GMT"}, " s"),
        ({"RateLimit_Reset": "90"}, "90 s"),
        ({"X_RateLimit_Reset": "99999999999"}, " s"),
    ],
)
async def test_long_wait_is_told_and_not_waited_for(client, site, waits, headers, again):
    site.set("/x", b"too many", 429, **headers)
    with pytest.raises(RateLimitedError, match="hub: rate limited: try again in") as caught:
        await client.get(at(site), f"{site.url}/x")
    assert again in str(caught.value)
    assert "too many" in str(caught.value)
    assert (len(site.requests), waits) == (1, [])
    assert caught.value.retry_after_s > 60


async def test_forbidden_with_nothing_remaining_is_a_rate_limit(client, site, clock):
    """GitHub's primary limit answers 403."""
    reset = str(int(clock.now()) + 1800)
    site.set(
        "/x", b"API rate limit exceeded", 403, X_RateLimit_Remaining="0", X_RateLimit_Reset=reset
    )
    with pytest.raises(RateLimitedError, match="rate limited"):
        await client.get(at(site), f"{site.url}/x")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 423])
async def test_other_refusals_are_answers_and_asked_once(client, site, status):
    site.set("/x", b"its words\n\x1b[31m", status)
    reply = await client.get(at(site), f"{site.url}/x")
    assert (reply.status, reply.text) == (status, "its words \N{REPLACEMENT CHARACTER}[31m")
    assert len(site.requests) == 1


async def test_answer_over_its_limit_is_dropped(client, site):
    site.set("/x", bytes(2_000_001))
    with pytest.raises(RemoteProtocolError, match="an answer is over 1 MiB"):
        await client.get(at(site), f"{site.url}/x", limit=1 << 20)
    assert DOWNLOAD_MAX == 50 << 20


async def test_packed_answer_is_refused_unread(client, site):
    """A bomb would be unpacked by the library before anyone counts."""
    site.set("/x", gzip.compress(bytes(1000)), Content_Encoding="gzip")
    with pytest.raises(RemoteProtocolError, match="packs its answers unasked"):
        await client.get(at(site), f"{site.url}/x")


async def test_token_stays_with_its_host(client, site):
    async with Site().serve() as other:
        site.set("/x", b"", 302, Location=f"{other.url}/y")
        other.set("/y", b"fine")
        reply = await client.get(
            at(site), f"{site.url}/x", headers={"Authorization": "Bearer secret"}
        )
        assert reply.body == b"fine"
        assert site.requests[0].headers["Authorization"] == "Bearer secret"
        assert "Authorization" not in other.requests[0].headers


async def test_signed_address_is_followed_as_it_is_written(client, site):
    """Storage servers sign the query byte by byte."""
    site.set("/x", b"", 302, Location="/y?sig=a%2Bb%2F%3D&n=%C5%81+%20~")
    site.set("/y", b"fine")
    assert (await client.get(at(site), f"{site.url}/x", params={"q": "1"})).body == b"fine"
    assert site.requests[1].raw_path == "/y?sig=a%2Bb%2F%3D&n=%C5%81+%20~"


@pytest.mark.parametrize(
    "where", ["file:///etc/passwd", "ftp://x/y", "http://a:b@127.0.0.1/", "http://[", "data:,x"]
)
async def test_redirect_to_something_else_is_not_followed(client, site, where):
    site.set("/x", b"", 302, Location=where)
    with pytest.raises(RemoteProtocolError, match="is not followed"):
        await client.get(at(site), f"{site.url}/x")


async def test_circle_of_redirects_ends(client, site):
    site.set("/x", b"", 302, Location="/x")
    with pytest.raises(RemoteProtocolError, match="more than 5 redirects"):
        await client.get(at(site), f"{site.url}/x")


async def test_nobody_there_is_told_after_the_tries(client, waits, unused_tcp_port):
    url = f"http://127.0.0.1:{unused_tcp_port}/"
    with pytest.raises(RemoteProtocolError, match=r"hub: 127\.0\.0\.1 cannot be reached"):
        await client.get(Server("hub", url), url)
    assert len(waits) == TRIES - 1


async def test_download_begins_anew_at_each_try(client, site):
    site.set("/x", b"", 503)
    site.then("/x", b"whole")
    begun = []

    def begin():
        begun.append(bytearray())
        return begun[-1].extend

    await client.download(at(site), f"{site.url}/x", begin)
    assert begun == [b"", b"whole"]


async def test_full_disk_is_no_fault_of_the_registry(client, site):
    site.set("/x", b"data")

    def full(_data):
        raise OSError(28, "No space left on device")

    with pytest.raises(StoreError, match="No space left on device: free some space"):
        await client.download(at(site), f"{site.url}/x", lambda: full)
    assert len(site.requests) == 1


@pytest.mark.parametrize("host", ["127.0.0.2", "localhost", "[::1]", "169.254.169.254"])
async def test_registry_leads_nobody_into_the_boards_own_network(client, site, host):
    """Picoclaw #3077, #3078: what is not global is not dialled, but for the registry itself."""
    site.set("/x", b"", 302, Location=f"http://{host}/y")
    with pytest.raises(DeniedError, match="no address of the public internet"):
        await client.get(at(site), f"{site.url}/x")
    with pytest.raises(DeniedError, match="no address of the public internet"):
        await client.get(at(site), f"http://{host}/y")
    assert len(site.requests) == 1
