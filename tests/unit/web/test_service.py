"""Fetching through the service: long pages, files, and what is kept of them."""

import asyncio

import pytest
from aiohttp import web

from edged.identity import Caller
from edged.media import Media
from edged.sections import Web as Section
from edged.store import Store
from edged.testing.clock import FakeClock
from edged.web.service import KEPT, KEPT_S, PAGES, Web

ADA, BOB = (Caller(f"{n}@example.org", "agent", "", "unix") for n in ("ada", "bob"))
LONG = "".join(f"<p>Paragraph {n} of a long page.</p>" for n in range(2_000))


@pytest.fixture
def made(tmp_path, isolate):
    class Made:
        clock = FakeClock()
        media = Media(str(tmp_path), clock)
        section = Section(private_host_whitelist=["127.0.0.1"], fetch_limit_bytes="64K")
        web = Web(section, Store(str(tmp_path / "state")), media, clock, isolate)

        async def fetch(self, url, caller=ADA, again=False):
            return await self.web.fetch(url, caller, again=again, max_chars=1_000)

    return Made()


async def test_a_further_part_is_of_the_page_as_it_was(serve, made):
    """The site changes between two parts; their offsets must fit all the same."""
    site = await serve(lambda _: web.Response(text=LONG, content_type="text/html"))
    first = await made.fetch(site.url)
    site.answer = lambda _: web.Response(text="new")
    again = await made.fetch(site.url, again=True)
    assert again == first
    assert len(site.asked) == 1
    assert (await made.fetch(site.url)).document.text == "new"


async def test_a_kept_page_is_its_callers_and_grows_old(serve, made):
    site = await serve(lambda _: web.Response(text=LONG, content_type="text/html"))
    await made.fetch(site.url)
    await made.fetch(site.url, BOB, again=True)
    assert len(site.asked) == 2
    made.clock.advance(KEPT_S + 1)
    await made.fetch(site.url, again=True)
    assert len(site.asked) == 3


async def test_only_so_many_pages_are_kept(serve, made):
    site = await serve(lambda _: web.Response(text=LONG, content_type="text/html"))
    for number in range(KEPT + 1):
        await made.fetch(f"{site.url}/{number}")
    await made.fetch(f"{site.url}/{KEPT}", again=True)
    assert len(site.asked) == KEPT + 1
    await made.fetch(f"{site.url}/0", again=True)
    assert len(site.asked) == KEPT + 2


async def test_the_whole_text_of_a_long_page_is_a_medium(serve, made):
    site = await serve(lambda _: web.Response(text=LONG, content_type="text/html"))
    fetched = await made.fetch(site.url)
    medium = made.media.get(ADA.user, fetched.media)
    assert made.media.read(medium, 0, 10**6).decode() == fetched.document.text
    assert fetched.document.cut
    assert medium.mime_type == "text/markdown"


async def test_a_file_is_a_medium_as_it_came(serve, made):
    """Issue 4, part 5: binaries saved as media."""
    picture = b"\x89PNG\r\n\x1a\n" + bytes(99)
    head = {"Content-Disposition": 'attachment; filename="../a/pot.png"'}
    site = await serve(
        lambda _: web.Response(body=picture, content_type="image/png", headers=head)
    )
    fetched = await made.fetch(f"{site.url}/x")
    medium = made.media.get(ADA.user, fetched.media)
    assert made.media.read(medium, 0, 999) == picture
    assert (medium.mime_type, medium.name) == ("image/png", "..apot.png")
    assert (fetched.document.extractor, fetched.size) == ("file", len(picture))


async def test_a_short_page_leaves_nothing_on_the_disk(serve, made):
    site = await serve(lambda _: web.Response(text="short"))
    assert (await made.fetch(site.url)).media == ""


async def test_few_pages_are_fetched_at_once_and_never_all_for_one_agent(serve, made):
    """120 of an agent's, each of 10 MB that does not end, held 1.2 GB."""
    go, at_once = asyncio.Event(), []

    async def slow(request):
        at_once.append(request.path)
        await go.wait()
        return web.Response(text="done")

    site = await serve(slow)
    calls = [asyncio.create_task(made.fetch(f"{site.url}/{n}")) for n in range(PAGES + 4)]
    async with asyncio.timeout(10):
        while len(at_once) < PAGES - 1:
            await asyncio.sleep(0)
        other = asyncio.create_task(made.fetch(f"{site.url}/bob", BOB))
        while "/bob" not in at_once:
            await asyncio.sleep(0)
        assert len(at_once) == PAGES
        go.set()
        fetched = await asyncio.gather(*calls, other)
    assert all(page.document.text == "done" for page in fetched)
