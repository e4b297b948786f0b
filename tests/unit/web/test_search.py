"""Search providers: the wire that each documents, keys, waits, and the next one."""

import asyncio
import gzip
import json
import sys
from datetime import UTC, datetime
from email.utils import formatdate

import msgspec
import pytest
from aiohttp import web

from edged import plugins
from edged.errors import RateLimitedError, RemoteProtocolError
from edged.identity import Caller
from edged.media import Media
from edged.sections import Web as Section
from edged.sections import WebProvider
from edged.store import Store
from edged.testing.clock import FakeClock
from edged.web.service import Web
from edged.web.settings import ORDER, WebSearchBody

OWNER = Caller("local", "owner", "", "unix")
OFF = WebProvider(enabled=False)
ROWS = [
    {"title": "A <strong>first</strong>", "url": "https://a.example/", "text": "About &amp; more"},
    {"title": "B", "url": "https://b.example/", "text": ""},
]


class Bench:
    """Web search over servers of this machine; time moves when it is waited."""

    def __init__(self, folder, isolate):
        self.folder, self.isolate, self.clock, self.slept = folder, isolate, FakeClock(), []

    def make(self, **providers):
        section = Section(**dict.fromkeys(ORDER, OFF) | providers)
        store = Store(str(self.folder / "state"))
        media = Media(str(self.folder), self.clock)
        self.web = Web(section, store, media, self.clock, self.isolate, sleep=self.sleep)
        return self.web

    async def sleep(self, seconds):
        self.slept.append(seconds)
        self.clock.advance(seconds)

    async def search(self, text="tea", count=0, provider="", recency=None):
        return await self.web.search(text, count, provider, recency, OWNER)


@pytest.fixture
def bench(tmp_path, isolate):
    return Bench(tmp_path, isolate)


def body_of(site, number=-1):
    return json.loads(site.bodies[number])


def provider(site, *keys, **facts):
    return WebProvider(base_url=site.url, api_keys=list(keys), **facts)


# The wire of each, as its documentation has it: where to, with what, and what comes back.


def brave(request):
    assert (request.method, request.path) == ("GET", "/res/v1/web/search")
    assert request.headers["X-Subscription-Token"] == "key"
    rows = [{"title": r["title"], "url": r["url"], "description": r["text"]} for r in ROWS]
    return {"type": "search", "web": {"type": "search", "results": rows}}


def tavily(request):
    assert (request.method, request.path) == ("POST", "/search")
    assert request.headers["Authorization"] == "Bearer key"
    rows = [{"title": r["title"], "url": r["url"], "content": r["text"], "score": 1} for r in ROWS]
    return {"query": "tea", "answer": None, "images": [], "results": rows, "response_time": 1}


def perplexity(request):
    assert (request.method, request.path) == ("POST", "/search")
    assert request.headers["Authorization"] == "Bearer key"
    rows = [
        {"title": r["title"], "url": r["url"], "snippet": r["text"], "date": None} for r in ROWS
    ]
    return {"id": "1", "results": rows}


def searxng(request):
    assert (request.method, request.path) == ("GET", "/search")
    assert request.query["format"] == "json"
    rows = [{"title": r["title"], "url": r["url"], "content": r["text"]} for r in ROWS]
    return {"query": "tea", "number_of_results": 2, "results": rows, "unresponsive_engines": []}


def glm_search(request):
    assert (request.method, request.path) == ("POST", "/api/paas/v4/web_search")
    assert request.headers["Authorization"] == "Bearer key"
    rows = [
        {"title": r["title"], "link": r["url"], "content": r["text"], "media": ""} for r in ROWS
    ]
    return {"id": "1", "created": 1, "search_intent": [], "search_result": rows}


def baidu_search(request):
    assert (request.method, request.path) == ("POST", "/v2/ai_search/web_search")
    assert request.headers["Authorization"] == "Bearer key"
    rows = [{"title": r["title"], "url": r["url"], "content": r["text"], "id": 1} for r in ROWS]
    return {"request_id": "1", "references": rows}


def kagi(request):
    assert (request.method, request.path) == ("POST", "/api/v1/search")
    assert request.headers["Authorization"] == "Bearer key"
    rows = [{"title": r["title"], "url": r["url"], "snippet": r["text"]} for r in ROWS]
    return {"meta": {"trace": "1"}, "data": {"search": rows}}


API = {f.__name__: f for f in (brave, tavily, perplexity, searxng, glm_search, baidu_search, kagi)}

DUCKDUCKGO = "".join(
    f'<div class="result"><a class="result__a" href="//duckduckgo.com/l/?uddg={r["url"]}&rut=1">'
    f'{r["title"]}</a><a class="result__snippet">{r["text"]}</a></div>'
    for r in ROWS
)
SOGOU = "".join(
    f'<div class="vrwrap"><h3><a href="/link?url=x">{r["title"]}</a></h3>'
    f'<p>{r["text"]}</p><div data-url="{r["url"]}"></div></div>'
    for r in ROWS
)


def answers(name):
    def answer(request):
        if name in API:
            return web.json_response(API[name](request))
        return web.Response(text={"duckduckgo": DUCKDUCKGO, "sogou": SOGOU}[name])

    return answer


@pytest.mark.parametrize("name", ORDER)
async def test_a_provider_gives_clean_records(serve, bench, name):
    """Issue 4, part 5: title, url, snippet; the documentation of each provider is in its INFO."""
    site = await serve(answers(name))
    bench.make(**{name: provider(site, "key")})
    found = await bench.search(provider=name)
    assert found.provider == name
    assert list(msgspec.to_builtins(found.records)) == [
        {"title": "A first", "url": "https://a.example/", "snippet": "About & more"},
        {"title": "B", "url": "https://b.example/", "snippet": ""},
    ]
    assert found.notes == ()


RECENT = {
    "brave": lambda site: site.asked[0].query["freshness"],
    "tavily": lambda site: body_of(site)["time_range"],
    "perplexity": lambda site: body_of(site)["search_recency_filter"],
    "searxng": lambda site: site.asked[0].query["time_range"],
    "glm_search": lambda site: body_of(site)["search_recency_filter"],
    "baidu_search": lambda site: body_of(site)["search_recency_filter"],
    "kagi": lambda site: body_of(site)["filters"]["after"],
    "duckduckgo": lambda site: site.asked[0].query["df"],
    "sogou": lambda site: site.asked[0].query["s_from"],
}
EXPECTED = {
    "brave": ["pd", "pw", "pm", "py"],
    "tavily": ["day", "week", "month", "year"],
    "perplexity": ["day", "week", "month", "year"],
    "searxng": ["day", "week", "month", "year"],
    "glm_search": ["oneDay", "oneWeek", "oneMonth", "oneYear"],
    "baidu_search": ["week", "week", "month", "year"],
    "duckduckgo": ["d", "w", "m", "y"],
    "sogou": ["inttime_day", "inttime_week", "inttime_month", "inttime_year"],
}


@pytest.mark.parametrize("name", ORDER)
async def test_a_provider_is_asked_for_what_is_recent_in_its_own_words(serve, bench, name):
    site = await serve(answers(name))
    bench.make(**{name: provider(site, "key")})
    for number, recency in enumerate(("day", "week", "month", "year")):
        site.asked.clear()
        await bench.search(provider=name, recency=recency)
        sent = RECENT[name](site)
        if name == "kagi":
            days = {"day": 1, "week": 7, "month": 31, "year": 366}[recency]
            assert sent == _day(bench.clock.now() - days * 86_400)
        else:
            assert sent == EXPECTED[name][number]


def _day(seconds):
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()


COUNTED = {
    "brave": (lambda site: int(site.asked[0].query["count"]), 20),
    "tavily": (lambda site: body_of(site)["max_results"], 20),
    "perplexity": (lambda site: body_of(site)["max_results"], 20),
    "glm_search": (lambda site: body_of(site)["count"], 50),
    "baidu_search": (lambda site: body_of(site)["resource_type_filter"][0]["top_k"], 50),
    "kagi": (lambda site: body_of(site)["limit"], 50),
}


@pytest.mark.parametrize("name", COUNTED)
async def test_a_provider_is_asked_for_no_more_than_it_gives(serve, bench, name):
    site = await serve(answers(name))
    bench.make(**{name: provider(site, "key", max_results=50)})
    sent, most = COUNTED[name]
    await bench.search(count=3)
    assert sent(site) == 3
    site.asked.clear()
    await bench.search(count=50)
    assert sent(site) == most


def test_every_provider_is_a_file_and_every_file_one():
    """Architecture: to add one, touch one file; the order and the configuration name it."""
    assert sorted(ORDER) == plugins.names("edged.web.providers")
    for name in ORDER:
        assert isinstance(getattr(Section(), name), WebProvider)
        module = plugins.load("edged.web.providers", name)
        assert module.INFO.documentation
        assert bool(module.INFO.page_form) != hasattr(module, "records")


@pytest.mark.parametrize("name", ["brave", "searxng", "sogou"])
async def test_further_pages_are_asked_for_until_there_are_enough(serve, bench, name):
    """Each documents its pages: offset, pageno, page."""
    where = {"brave": ("offset", 0), "searxng": ("pageno", 1), "sogou": ("page", 1)}[name]

    def answer(request):
        number = int(request.query.get(where[0], where[1])) - where[1]
        urls = [f"https://x.example/{number}/{n}" for n in range(20 if name == "brave" else 10)]
        if name == "sogou":
            one = '<div class="vrwrap"><h3><a href="{0}">t</a></h3></div>'
            return web.Response(text="".join(one.format(url) for url in urls))
        rows = [{"title": "t", "url": url} for url in urls]
        return web.json_response({"web": {"results": rows}, "results": rows})

    site = await serve(answer)
    bench.make(**{name: provider(site, "key", max_results=50)})
    found = await bench.search(count=25)
    assert len(found.records) == 25
    assert len(site.asked) == (2 if name == "brave" else 3)


async def test_a_page_that_brings_nothing_new_is_the_last(serve, bench):
    site = await serve(answers("searxng"))
    bench.make(searxng=provider(site, max_results=50))
    assert len((await bench.search(count=50)).records) == 2
    assert len(site.asked) == 2


# Keys


@pytest.mark.parametrize("status", [401, 403, 429, 500, 502, 503, 432])
async def test_another_key_is_tried_where_one_is_refused(serve, bench, status):
    """Issue 4, part 5: 401, 403, 429, 5xx; Tavily's own 432 (its help, HTTP errors)."""

    def answer(request):
        if request.headers["Authorization"] != "Bearer key":
            return web.json_response({"detail": {"error": "no"}}, status=status)
        return web.json_response(tavily(request))

    site = await serve(answer)
    bench.make(tavily=provider(site, "old", "key"))
    assert (await bench.search()).provider == "tavily"


async def test_another_key_is_tried_where_the_line_breaks(serve, bench):
    def answer(request):
        if request.headers["Authorization"] == "Bearer other":
            request.transport.abort()
            return web.Response()
        return web.json_response(tavily(request))

    site = await serve(answer)
    bench.make(tavily=WebProvider(base_url=site.url, api_key="other", api_keys=["key"]))
    assert (await bench.search()).provider == "tavily"


async def test_a_fault_of_the_question_is_not_asked_again_with_another_key(serve, bench):
    site = await serve(lambda _: web.json_response({"detail": "bad query"}, status=400))
    bench.make(tavily=provider(site, "one", "two"))
    with pytest.raises(RemoteProtocolError, match="HTTP 400: .*bad query"):
        await bench.search()
    assert len(site.asked) == 1


async def test_keys_take_turns(serve, bench):
    site = await serve(lambda _: web.json_response({"results": []}))
    bench.make(tavily=provider(site, "one", "two"))
    for _ in range(4):
        await bench.search()
    used = [request.headers["Authorization"][7:] for request in site.asked]
    assert used == ["one", "two", "one", "two"]


# Waits


@pytest.mark.parametrize("form", ["30", "date"])
async def test_a_key_that_is_to_wait_is_left_alone_until_then(serve, bench, form):
    """Retry-After (RFC 9110, section 10.2.3); picoclaw #2135."""
    header = "30" if form == "30" else formatdate(bench.clock.now() + 30, usegmt=True)
    site = await serve(lambda _: web.Response(status=429, headers={"Retry-After": header}))
    free = await serve(answers("duckduckgo"))
    bench.make(tavily=provider(site, "key"), duckduckgo=provider(free))
    found = await bench.search()
    assert (found.provider, found.notes) == ("duckduckgo", ("tavily: HTTP 429",))
    assert (await bench.search()).notes == ("tavily: rate limited for another 30 s",)
    assert len(site.asked) == 1
    bench.clock.advance(31)
    site.answer = answers("tavily")
    assert (await bench.search()).provider == "tavily"
    assert bench.slept == []


async def test_a_short_wait_is_waited_where_nobody_else_answers(serve, bench):
    site = await serve(
        lambda request: (
            web.json_response(tavily(request))
            if len(site.asked) > 1
            else web.Response(status=429, headers={"Retry-After": "2"})
        )
    )
    bench.make(tavily=provider(site, "key"))
    assert (await bench.search()).provider == "tavily"
    assert bench.slept == [2.0]


async def test_where_all_are_to_wait_the_error_says_how_long(serve, bench):
    site = await serve(lambda _: web.Response(status=429, headers={"Retry-After": "600"}))
    bench.make(tavily=provider(site, "one", "two"), brave=provider(site, "key"))
    with pytest.raises(RateLimitedError, match="tavily: HTTP 429") as told:
        await bench.search()
    assert told.value.retry_after_s == 600
    assert "for another 600 s" in str(told.value)
    assert bench.slept == []


# The next provider


async def test_the_next_ready_provider_answers_and_the_first_ones_failure_is_told(serve, bench):
    broken = await serve(lambda _: web.Response(status=500, text="out of order"))
    good = await serve(answers("searxng"))
    bench.make(brave=provider(broken, "key"), searxng=provider(good))
    found = await bench.search()
    assert found.provider == "searxng"
    assert found.notes == ("brave: HTTP 500: out of order",)


async def test_a_disabled_provider_is_skipped_and_its_key_not_missed(serve, bench):
    """Picoclaw #240: Brave was off, its key was demanded, DuckDuckGo never asked."""
    free = await serve(answers("duckduckgo"))
    bench.make(brave=OFF, duckduckgo=provider(free))
    found = await bench.search()
    assert (found.provider, found.notes) == ("duckduckgo", ())


async def test_a_named_provider_that_is_not_ready_gives_way_with_a_word(serve, bench):
    free = await serve(answers("duckduckgo"))
    bench.make(brave=WebProvider(), duckduckgo=provider(free))
    found = await bench.search(provider="brave")
    assert found.provider == "duckduckgo"
    assert found.notes == ("brave: has no key: set tools.web.brave.api_key",)


@pytest.mark.parametrize(("alias", "name"), [("glm", "glm_search"), ("baidu", "baidu_search")])
async def test_an_alias_is_its_provider(serve, bench, alias, name):
    """Contract, section 6."""
    good, other = await serve(answers(name)), await serve(answers("searxng"))
    bench.make(**{name: provider(good, "key"), "searxng": provider(other)})
    assert (await bench.search(provider=alias)).provider == name


@pytest.mark.parametrize(
    ("text", "name"), [("weather in Ulm", "duckduckgo"), ("树莓派 天气", "sogou")]
)
async def test_of_the_free_two_the_one_that_knows_the_language_is_asked(serve, bench, text, name):
    """Picoclaw section 9, selection."""
    duck, sogou = await serve(answers("duckduckgo")), await serve(answers("sogou"))
    bench.make(duckduckgo=provider(duck), sogou=provider(sogou))
    assert (await bench.search(text)).provider == name


async def test_where_nobody_answers_each_ones_reason_is_told(serve, bench):
    site = await serve(lambda _: web.Response(status=404, text="nothing here"))
    bench.make(brave=provider(site, "key"), searxng=provider(site))
    with pytest.raises(RemoteProtocolError) as told:
        await bench.search()
    assert "brave: HTTP 404: nothing here; searxng: HTTP 404: nothing here" in str(told.value)


async def test_where_none_is_enabled_it_says_where_to_enable_one(bench):
    bench.make()
    with pytest.raises(RemoteProtocolError, match=r"none is enabled: see tools\.web"):
        await bench.search()


async def test_no_results_are_an_answer(serve, bench):
    site = await serve(lambda _: web.json_response({"web": {"results": []}}))
    bench.make(brave=provider(site, "key"))
    assert (await bench.search()).records == ()


async def test_searxng_without_json_says_what_to_set(serve, bench):
    """SearXNG's search API: a format that is not set is answered with 403."""
    site = await serve(lambda _: web.Response(status=403))
    bench.make(searxng=provider(site))
    with pytest.raises(RemoteProtocolError, match=r"must have json under search\.formats"):
        await bench.search()


@pytest.mark.parametrize(
    ("status", "text", "told"),
    [(202, "", "robot"), (200, '<div class="anomaly-modal__title">', "robot"),
     (200, "<p>redesigned", "not understood"), (302, "", "HTTP 302")],
)  # fmt: skip
async def test_a_page_for_robots_is_a_failure_and_no_lack_of_results(
    serve, bench, status, text, told
):
    """Picoclaw section 9: it read as "No results found"."""
    site = await serve(lambda _: web.Response(status=status, text=text))
    bench.make(duckduckgo=provider(site))
    with pytest.raises(RemoteProtocolError, match=told):
        await bench.search()


@pytest.mark.parametrize(
    "answer", ["<html>", "[]", '{"web": 3}', '{"web":{"results":[1,null]}}', ""]
)
async def test_an_answer_that_is_none_breaks_nothing(serve, bench, answer):
    site = await serve(lambda _: web.Response(text=answer))
    bench.make(brave=provider(site, "key"))
    try:
        assert (await bench.search()).records == ()
    except RemoteProtocolError as error:
        assert "no JSON" in str(error)


async def test_a_packed_answer_is_unpacked(serve, bench):
    body = gzip.compress(json.dumps({"results": [{"title": "t", "url": "https://x/"}]}).encode())
    site = await serve(lambda _: web.Response(body=body, headers={"Content-Encoding": "gzip"}))
    bench.make(tavily=provider(site, "key"))
    assert len((await bench.search()).records) == 1


# Secrets


@pytest.mark.parametrize(
    "echo",
    ["key {key} is not known", "{key}" * 40, "x" * 190 + "{key}", " " * 4090 + "{key}",
     "x " * 2040 + "{key}" * 9, "api_key=sk%2Fsecret%2Bkey", "sk\\/secret+key"],
)  # fmt: skip
async def test_no_key_is_in_what_is_told_of_a_failure_and_it_is_short(serve, bench, echo):
    """Picoclaw section 9: error bodies were pasted whole, with what they held."""
    key = "sk/secret+key"
    site = await serve(lambda _: web.Response(status=401, text=echo.format(key=key)))
    bench.make(tavily=provider(site, key))
    with pytest.raises(RemoteProtocolError) as told:
        await bench.search()
    assert len(str(told.value)) < 300
    for part in (key, "sk%2Fsecret", "secret", "sk/"):
        assert part not in str(told.value)


async def test_a_key_goes_to_its_own_server_alone(serve, bench):
    """A redirect of a provider's is not followed, so no other server sees the key."""
    other = await serve(answers("tavily"))
    site = await serve(lambda _: web.Response(status=307, headers={"Location": other.url}))
    bench.make(tavily=provider(site, "key"))
    with pytest.raises(RemoteProtocolError, match="HTTP 307"):
        await bench.search()
    assert other.asked == []


async def test_a_proxy_is_used_for_servers_elsewhere_and_not_for_ones_own(serve, bench):
    """tools.web.proxy; a server on this board or its network needs none."""
    near = await serve(answers("searxng"))
    seen = await serve(lambda _: web.json_response({"results": []}))
    section = bench.make(searxng=provider(near)).config()
    assert section.proxy == ""
    bench.web.configure(WebSearchBody(proxy=seen.url))
    assert (await bench.search()).provider == "searxng"
    assert seen.asked == []
    bench.make(searxng=WebProvider(base_url="http://search.example.org"))
    bench.web.configure(WebSearchBody(proxy=seen.url))
    await bench.search()
    assert seen.asked[0].headers["Host"] == "search.example.org"


async def test_a_free_provider_without_the_library_for_its_page_is_not_ready(bench, monkeypatch):
    monkeypatch.setitem(sys.modules, "justhtml", None)
    bench.make(duckduckgo=WebProvider())
    with pytest.raises(RemoteProtocolError, match=r"none is enabled"):
        await bench.search()
    with pytest.raises(RemoteProtocolError, match=r"pip install 'edged\[web\]'"):
        await bench.search(provider="duckduckgo")


async def test_a_query_is_cut_to_what_the_provider_takes(serve, bench):
    """GLM's documentation: at most 70 characters."""
    site = await serve(answers("glm_search"))
    bench.make(glm_search=provider(site, "key"))
    await bench.search("x" * 500)
    assert len(body_of(site)["search_query"]) == 70


async def test_a_search_that_is_cancelled_ends(serve, bench):
    started = asyncio.Event()

    async def hang(_request):
        started.set()
        await asyncio.Event().wait()

    site = await serve(hang)
    bench.make(tavily=provider(site, "key"))
    task = asyncio.create_task(bench.search())
    await asyncio.wait_for(started.wait(), 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
