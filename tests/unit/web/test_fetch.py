"""Fetching one page from servers on this machine."""

import asyncio
import gzip
import sys
import tracemalloc
import zlib

import pytest
from aiohttp import web

from edged.errors import (
    CallTimeoutError,
    ConfigError,
    DeniedError,
    InvalidArgumentsError,
    RemoteProtocolError,
)
from edged.web import fetch
from edged.web.body import Unpacker
from edged.web.fetch import Limits
from edged.web.guard import Guard, parse_allowed

LIMITS = Limits(1 << 20, 10.0)


def text(request):
    return web.Response(text=f"page {request.path}")


async def get(url, guard, names, limits=LIMITS, proxy=""):
    return await fetch.fetch(url, guard, proxy, limits, find=names)


async def test_a_page_comes_with_its_status_type_and_final_address(serve, allowed, names):
    site = await serve(text)
    page = await get(f"{site.url}/a?b=1#c", allowed, names)
    assert (page.status, page.content_type, page.charset) == (200, "text/plain", "utf-8")
    assert page.data == b"page /a"
    assert page.url == f"{site.url}/a?b=1#c"
    assert "edged/" in site.asked[0].headers["User-Agent"]
    assert "Cookie" not in site.asked[0].headers


@pytest.mark.parametrize("status", [404, 403, 500])
async def test_an_http_error_is_data(serve, allowed, names, status):
    """Issue 4, part 5: HTTP status is data."""
    site = await serve(lambda _: web.Response(status=status, text="why"))
    page = await get(site.url, allowed, names)
    assert (page.status, page.data) == (status, b"why")


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/", "http://127.1:{port}/", "http://2130706433:{port}/",
        "http://0x7f000001:{port}/", "http://[::1]:{port}/", "http://[::ffff:127.0.0.1]:{port}/",
        "http://0.0.0.0:{port}/", "http://localhost:{port}/", "http://inner.example:{port}/",
        "http://127.0.0.1.:{port}/", "http://１２７.０.０.１:{port}/", "http://①②⑦.⓪.⓪.①:{port}/", "http://169.254.169.254/latest/meta-data",
    ],
)  # fmt: skip
async def test_no_spelling_of_a_private_address_is_reached(serve, names, url):
    """Picoclaw #3077; the server is there and would answer."""
    site = await serve(text)
    names.known = {
        "localhost": ["127.0.0.1"], "inner.example": ["127.0.0.1", "::1", "10.0.0.1"],
        "127.1": ["127.0.0.1"], "2130706433": ["127.0.0.1"], "0x7f000001": ["127.0.0.1"],
        "127.0.0.1.": ["127.0.0.1"],
    }  # fmt: skip
    with pytest.raises((DeniedError, InvalidArgumentsError, RemoteProtocolError)):
        await get(url.format(port=site.port), Guard(), names)
    assert site.asked == []


async def test_a_name_that_changes_its_address_reaches_only_what_was_checked(
    serve, allowed, names
):
    """DNS rebinding: asked a second time, it says where it must not lead."""
    good = await serve(text)
    bad = await serve(text, host="127.0.0.2", port=good.port)
    answers = iter([["127.0.0.1"], ["127.0.0.2"], ["127.0.0.2"]])
    names.known["rebind.example"] = lambda: next(answers)
    page = await get(f"http://rebind.example:{good.port}/", allowed, names)
    assert page.status == 200
    assert names.asked == ["rebind.example"]
    with pytest.raises(DeniedError, match=r"rebind.example \(127.0.0.2\)"):
        await get(f"http://rebind.example:{good.port}/", allowed, names)
    assert bad.asked == []


async def test_of_two_addresses_only_the_permitted_one_is_dialled(serve, allowed, names):
    good = await serve(text)
    bad = await serve(text, host="127.0.0.2", port=good.port)
    names.known["both.example"] = ["127.0.0.2", "127.0.0.1"]
    assert (await get(f"http://both.example:{good.port}/", allowed, names)).status == 200
    assert (len(good.asked), bad.asked) == (1, [])


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_followed_and_its_end_is_told(serve, allowed, names, status):
    def answer(request):
        if request.path == "/end":
            return web.Response(text="end")
        return web.Response(status=status, headers={"Location": "end"})

    site = await serve(answer)
    page = await get(f"{site.url}/start", allowed, names)
    assert (page.url, page.data) == (f"{site.url}/end", b"end")


@pytest.mark.parametrize(
    "target",
    [
        "http://127.0.0.2:{port}/", "//inner.example:{port}/", "http://[::1]:{port}/",
        "http://localhost:{port}/",
    ],
)  # fmt: skip
async def test_every_hop_is_checked(serve, allowed, names, target):
    """Picoclaw section 10: each redirect's target; a page leads into the network behind it."""
    inner = await serve(text, host="127.0.0.2")
    leads_to = target.format(port=inner.port)
    site = await serve(lambda _: web.Response(status=302, headers={"Location": leads_to}))
    names.known = {"inner.example": ["127.0.0.2"], "localhost": ["127.0.0.2"]}
    with pytest.raises(DeniedError):
        await get(site.url, allowed, names)
    assert inner.asked == []


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://x/", "gopher://x"])
async def test_no_redirect_leads_out_of_the_web(serve, allowed, names, target):
    site = await serve(lambda _: web.Response(status=302, headers={"Location": target}))
    with pytest.raises(DeniedError, match="which is not fetched"):
        await get(site.url, allowed, names)


async def test_redirects_that_go_in_circles_end(serve, allowed, names):
    site = await serve(lambda _: web.Response(status=302, headers={"Location": "/"}))
    with pytest.raises(RemoteProtocolError, match="more than 10 redirects"):
        await get(site.url, allowed, names)
    assert len(site.asked) == 11


@pytest.mark.parametrize("url", ["file:///etc/passwd", "data:text/plain,x", "x", "http://", ""])
async def test_only_http_is_fetched(names, url):
    with pytest.raises(InvalidArgumentsError):
        await get(url, Guard(), names)
    assert names.asked == []


async def test_what_is_over_the_limit_is_cut_and_said_so(serve, allowed, names):
    """Picoclaw fails there; issue 4: the size limit truncates with a note."""
    site = await serve(lambda _: web.Response(body=b"x" * 5_000))
    page = await get(site.url, allowed, names, Limits(1_000, 10))
    assert (page.data, page.cut) == (b"x" * 1_000, True)
    page = await get(site.url, allowed, names, Limits(5_000, 10))
    assert (len(page.data), page.cut) == (5_000, False)


def test_a_bomb_is_not_unpacked_beyond_the_limit():
    packer = zlib.compressobj(9, wbits=16 + zlib.MAX_WBITS)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(64)) + packer.flush()
    unpacker = Unpacker("gzip", 1 << 20)
    tracemalloc.start()
    unpacker.feed(bomb)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (len(unpacker.data), unpacker.full) == (1 << 20, True)
    assert peak < 6 << 20


def packed(data, coding):
    raw = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    how = {
        "gzip": lambda: gzip.compress(data), "deflate": lambda: zlib.compress(data),
        "bare": lambda: raw.compress(data) + raw.flush(),
    }  # fmt: skip
    return how[coding]()


@pytest.mark.parametrize("coding", ["gzip", "deflate", "bare"])
async def test_a_packed_page_is_unpacked(serve, allowed, names, coding):
    """RFC 9110, section 8.4.1; some servers send deflate without zlib's frame."""
    header = {"Content-Encoding": "deflate" if coding == "bare" else coding}
    body = packed(b"words " * 99, coding)
    site = await serve(lambda _: web.Response(body=body, headers=header))
    assert (await get(site.url, allowed, names)).data == b"words " * 99
    assert site.asked[0].headers["Accept-Encoding"] == "gzip, deflate"


async def test_a_bomb_is_cut_at_the_limit(serve, allowed, names):
    """64 MiB in 64 KiB: neither the answer nor the memory is larger than the limit."""
    packer = zlib.compressobj(9, wbits=16 + zlib.MAX_WBITS)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(64)) + packer.flush()
    site = await serve(lambda _: web.Response(body=bomb, headers={"Content-Encoding": "gzip"}))
    page = await get(site.url, allowed, names, Limits(1 << 20, 10))
    assert (len(page.data), page.cut) == (1 << 20, True)


@pytest.mark.parametrize(("coding", "body"), [("br", b"x"), ("gzip", b"no gzip"), ("zstd", b"x")])
async def test_what_cannot_be_unpacked_is_told(serve, allowed, names, coding, body):
    site = await serve(lambda _: web.Response(body=body, headers={"Content-Encoding": coding}))
    with pytest.raises(RemoteProtocolError, match=coding):
        await get(site.url, allowed, names)


async def test_a_server_that_never_ends_is_ended(serve, allowed, names):
    async def drip(request):
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"x")
        await asyncio.Event().wait()

    site = await serve(drip)
    with pytest.raises(CallTimeoutError, match="no whole answer within 0.2 s"):
        await get(site.url, allowed, names, Limits(1_000, 0.2))


async def test_no_server_and_no_name_are_told(serve, allowed, names):
    site = await serve(text)
    await site.runner.cleanup()
    with pytest.raises(RemoteProtocolError, match=f"127.0.0.1:{site.port}"):
        await get(site.url, allowed, names)
    with pytest.raises(RemoteProtocolError, match="nowhere.example"):
        await get("http://nowhere.example/", allowed, names)


async def test_a_password_in_the_address_is_used_and_not_told(serve, allowed, names):
    site = await serve(text)
    page = await get(site.url.replace("//", "//ada:secret@") + "/x", allowed, names)
    assert page.url == f"{site.url}/x"
    assert site.asked[0].headers["Authorization"].startswith("Basic ")


async def test_what_is_no_http_is_told(allowed, names):
    async def shout(_reader, writer):
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(shout, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(RemoteProtocolError):
            await get(f"http://127.0.0.1:{port}/", allowed, names)


# Behind a proxy


class Proxy:
    """An HTTP proxy with CONNECT (RFC 9110, section 9.3.6), or a SOCKS 5 one (RFC 1928)."""

    def __init__(self, kind):
        self.kind, self.asked, self.heads = kind, [], []

    async def __call__(self, reader, writer):
        host, port = await (self.connect if self.kind == "http" else self.socks)(reader, writer)
        self.asked.append(host)
        there = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(self.copy(reader, there[1]), self.copy(there[0], writer))

    async def connect(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        verb, target, _ = head.split(" ", 2)
        assert verb == "CONNECT"
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        host, _, port = target.rpartition(":")
        return host, int(port)

    async def socks(self, reader, writer):
        _, count = await reader.readexactly(2)
        await reader.readexactly(count)
        writer.write(b"\x05\x00")
        _, _, _, kind = await reader.readexactly(4)
        size = 4 if kind == 1 else (await reader.readexactly(1))[0]
        name = await reader.readexactly(size)
        host = ".".join(map(str, name)) if kind == 1 else name.decode()
        port = int.from_bytes(await reader.readexactly(2), "big")
        writer.write(b"\x05\x00\x00\x01" + bytes(6))
        return host, port

    async def copy(self, reader, writer):
        try:
            while data := await reader.read(4096):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        writer.close()


@pytest.fixture(params=["http", "socks5", "socks5h"])
async def proxy(request):
    made = Proxy("http" if request.param == "http" else "socks")
    server = await asyncio.start_server(made, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        made.url = f"{request.param}://ada:hidden@127.0.0.1:{port}"
        if made.kind == "socks":
            made.url = f"{request.param}://127.0.0.1:{port}"
        yield made
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_behind_a_proxy_the_checked_address_is_asked_for_and_no_name(
    serve, proxy, allowed, names
):
    """Picoclaw #3078: a name would be looked up again, by the proxy, and may lead elsewhere."""
    site = await serve(text)
    names.known["page.example"] = ["127.0.0.1"]
    page = await get(f"http://page.example:{site.port}/x", allowed, names, proxy=proxy.url)
    assert page.data == b"page /x"
    assert proxy.asked == ["127.0.0.1"]
    assert site.asked[0].headers["Host"] == f"page.example:{site.port}"


@pytest.mark.parametrize("host", ["10.0.0.7", "inner.example"])
async def test_behind_a_proxy_private_targets_are_refused_too(proxy, allowed, names, host):
    """Picoclaw #3078: only the hop to the proxy was checked."""
    names.known["inner.example"] = ["192.168.0.9"]
    with pytest.raises(DeniedError):
        await get(f"http://{host}/", allowed, names, proxy=proxy.url)
    assert proxy.asked == []


async def test_a_proxy_that_refuses_is_told_without_its_password(allowed, names, serve):
    site = await serve(lambda _: web.Response(status=403, text="no"))
    proxy = site.url.replace("//", "//ada:hidden@")
    with pytest.raises(RemoteProtocolError, match="gives no way to 127.0.0.1") as told:
        await get("http://127.0.0.1:9/", allowed, names, proxy=proxy)
    assert "hidden" not in str(told.value)


async def test_a_proxy_without_its_library_is_told_with_the_remedy(allowed, names, monkeypatch):
    monkeypatch.setitem(sys.modules, "python_socks", None)
    with pytest.raises(ConfigError, match=r"pip install 'edged\[proxy\]'"):
        await get("http://127.0.0.1/", allowed, names, proxy="socks5://127.0.0.1:1")


async def test_the_environments_proxy_is_not_used(serve, names, allowed, monkeypatch):
    """Picoclaw #3078, through the environment."""
    site = await serve(text)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert (await get(site.url, allowed, names)).status == 200


async def test_a_listed_address_is_reached(serve, names):
    """Picoclaw #1667: a page of a device in one's own network."""
    site = await serve(text, host="127.0.0.2")
    names.known["printer.lan"] = ["127.0.0.2"]
    guard = Guard(parse_allowed(["127.0.0.2/32"]))
    page = await get(f"http://printer.lan:{site.port}/", guard, names)
    assert page.data == b"page /"
