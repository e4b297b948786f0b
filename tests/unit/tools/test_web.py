"""`web_search` and `web_fetch` as an agent calls them."""

import json
import re
from pathlib import Path

import msgspec
import pytest

from edged import settings
from edged.errors import ConfigError, InvalidArgumentsError, RemoteProtocolError
from edged.sections import Web as Section
from edged.tools import web
from edged.web.document import Document
from edged.web.providers import Record
from edged.web.search import Found
from edged.web.service import Fetched

SPECIFICATION = (Path(__file__).parents[2] / "data" / "tools-api.md").read_text()
TEXT = "\n\n".join(f"Paragraph {number}. " + ("words " * 20).strip() for number in range(100))


class Service:
    """Takes what the tools ask, and answers what the test says."""

    def __init__(self):
        self.asked, self.answer = [], None

    async def search(self, *asked):
        self.asked.append(asked[:-1])
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer or Found("brave", (Record("T", "https://t.example/", "S"),))

    async def fetch(self, url, caller, *, again, max_chars):
        self.asked.append((url, again))
        return self.answer or Fetched(
            url, 200, "text/html", 9, Document("markdown", "Title", TEXT)
        )


@pytest.fixture
def service(core):
    made = Service()
    core.dispatcher.services = msgspec.structs.replace(core.dispatcher.services, web=lambda: made)
    core.add(*web.TOOLS)
    return made


async def call(core, tool, /, **arguments):
    return await core.call(tool, json.dumps(arguments).encode(), core.agent)


def example(title):
    """A JSON example of the specification, without its comments."""
    block = SPECIFICATION.split(title)[1].split("```json")[1].split("```")[0]
    return json.loads(re.sub(r"\s//[^\n]*", "", block))


async def test_the_specifications_search_is_accepted(core, service):
    """spec/tools-api.md, Web Tools; the example as it stands there."""
    result = await call(core, "web_search", **example("**Web Search Expected Arguments**"))
    assert not result.is_error
    assert service.asked == [("latest AI news", 5, "brave", None)]
    assert result.structured == {
        "query": "latest AI news",
        "provider": "brave",
        "results": [{"title": "T", "url": "https://t.example/", "snippet": "S"}],
        "notes": [],
    }
    assert result.for_llm == (
        "Results for: latest AI news (via brave)\n\n1. T\n   https://t.example/\n   S"
    )


async def test_the_specifications_fetch_is_accepted(core, service):
    result = await call(core, "web_fetch", **example("**Web Fetch Expected Arguments**"))
    assert not result.is_error
    assert service.asked == [("https://example.com", False)]
    assert result.structured["status"] == 200


@pytest.mark.parametrize("name", ["max_results", "count", "limit"])
async def test_the_other_spellings_of_a_searchs_inputs_are_accepted(core, service, name):
    """Contract, section 8."""
    await call(core, "web_search", query="q", range="w", **{name: 3})
    await call(core, "web_search", query="q", recency="week")
    assert [asked[1:] for asked in service.asked] == [(3, "", "week"), (0, "", "week")]


async def test_the_other_spelling_of_a_fetchs_inputs_is_accepted(core, service):
    short = await call(core, "web_fetch", url="http://x.example", maxChars=300)
    assert short.structured["next_offset"] <= 300


@pytest.mark.parametrize(
    "provider",
    ["auto", "sogou", "duckduckgo", "brave", "tavily", "perplexity", "searxng", "glm_search",
     "baidu_search", "kagi", "glm", "baidu"],
)  # fmt: skip
async def test_every_provider_can_be_named_in_a_call(core, service, provider):
    assert not (await call(core, "web_search", query="q", provider=provider)).is_error
    assert service.asked[0][2] == provider


@pytest.mark.parametrize(
    "arguments",
    [{}, {"query": ""}, {"query": "q", "max_results": 0}, {"query": "q", "max_results": 51},
     {"query": "q", "provider": "google"}, {"query": "q", "recency": "hour"}],
)  # fmt: skip
async def test_what_does_not_fit_is_refused_before_anything_is_asked(core, service, arguments):
    with pytest.raises(InvalidArgumentsError):
        await call(core, "web_search", **arguments)
    assert service.asked == []


async def test_who_failed_before_is_told_after_the_results(core, service):
    service.answer = Found("sogou", (), ("brave: HTTP 500",))
    result = await call(core, "web_search", query="tea")
    assert result.for_llm == "No results for: tea (via sogou)\n\n(brave: HTTP 500)"


async def test_a_search_without_an_answer_fails_with_its_reasons(core, service):
    service.answer = RemoteProtocolError("no search provider answered: brave: HTTP 500")
    result = await call(core, "web_search", query="tea")
    assert result.is_error
    assert "brave: HTTP 500" in result.for_llm


async def test_a_long_page_comes_in_parts_that_are_the_page(core, service):
    """Issue 4, part 5: paging by offset; each part ends at a paragraph."""
    offset, parts = 0, []
    while offset is not None:
        result = await call(
            core, "web_fetch", url="http://x.example", max_chars=5_000, offset=offset
        )
        told = result.structured
        assert (told["offset"], told["length"]) == (offset, len(TEXT))
        lines = result.for_llm.split("\n")
        body = "\n".join(lines[3 if offset == 0 else 2 :]).rpartition("\n\n(")[0]
        parts.append(body.strip())
        assert body.strip().startswith("Paragraph")
        offset = told["next_offset"]
        if offset is not None:
            assert f"go on with offset={offset})" in result.for_llm
    assert "\n\n".join(parts) == TEXT
    assert [again for _, again in service.asked] == [False] + [True] * (len(service.asked) - 1)


async def test_an_offset_past_the_end_says_where_the_end_is(core, service):
    result = await call(core, "web_fetch", url="http://x.example", offset=10**6)
    assert f"there are {len(TEXT)} characters" in result.for_llm


async def test_a_http_error_is_no_failure(core, service):
    service.answer = Fetched("http://x/", 404, "text/plain", 4, Document("text", "", "gone"))
    result = await call(core, "web_fetch", url="http://x/")
    assert not result.is_error
    assert result.for_llm == "http://x/ - HTTP 404, text/plain\n\ngone"
    assert result.structured["status"] == 404


async def test_a_file_is_kept_and_pointed_at(core, service):
    kept = Document("file")
    service.answer = Fetched("http://x/a.png", 200, "image/png", 12, kept, "media://0123")
    result = await call(core, "web_fetch", url="http://x/a.png")
    assert result.media == ["media://0123"]
    assert "(image/png, 12 bytes: kept as media://0123)" in result.for_llm
    (link,) = [block for block in result.content if hasattr(block, "uri")]
    assert (link.uri, link.mime_type, link.size) == ("media://0123", "image/png", 12)


def test_the_specifications_configuration_of_web_search_is_one():
    """spec/tools-api.md, Configuration; a JSON file is accepted, being YAML (contract, 3)."""
    given = example("## Configuration\n")["tools"]["web"]
    loaded = settings.parse(json.dumps({"tools": {"web": given}}), "edged.json")
    section = loaded.section(Section)
    assert (section.provider, section.brave.api_keys) == ("brave", ["BSA..."])


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("provider: google", "web.provider"), ("proxy: ftp://x", "web.proxy"),
        ("brave: {max_results: 0}", "web.brave.max_results"),
        ('brave: {api_key: "a\\nb"}', "web.brave.api_key"),
        ("searxng: {base_url: searx}", "web.searxng.base_url"),
        ("private_host_whitelist: [router.lan]", "web.private_host_whitelist"),
        ("fetch_limit_bytes: 1", "web.fetch_limit_bytes"), ("gogle: {}", "web.gogle"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_the_section_is_told_with_its_line(line, told):
    with pytest.raises(ConfigError) as error:
        settings.parse(f"tools:\n  web:\n    {line}\n", "edged.yaml")
    assert f"edged.yaml:3: tools.{told}" in str(error.value)


def test_the_tools_have_the_specifications_categories_and_keys():
    """spec/tools-api.md, Web Tools."""
    assert [(t.name, t.category, t.config_key) for t in web.TOOLS] == [
        ("web_search", "web", "web"),
        ("web_fetch", "web", "web_fetch"),
    ]
