"""The real providers and a few pages: see README.md beside this file."""

import contextlib
import os
import tempfile

import msgspec
import pytest

from edged.identity import Caller
from edged.testing import running
from edged.web.settings import ORDER, WebSearchBody, info_of

ADA = Caller("local", "owner", "", "unix")
GIVEN = {name: os.environ.get(f"EDGED_LIVE_{name.upper()}", "") for name in ORDER}
READY = [
    name for name in ORDER if GIVEN[name] or (info_of(name).base and not info_of(name).needs_key)
]


@contextlib.asynccontextmanager
async def web(place):
    os.chmod(place, 0o755)
    async with running(data=place, http=False) as it:
        yield it.daemon.services.web()


def body(name):
    others = {one: {"enabled": one == name} for one in ORDER}
    given = "base_url" if not info_of(name).needs_key else "api_key"
    if GIVEN[name]:
        others[name][given] = GIVEN[name]
    return {"provider": name, "settings": others}


@pytest.fixture
def place():
    # Not tmp_path: the tools' account must be able to enter it.
    with tempfile.TemporaryDirectory(prefix="edged-live-", dir="/var/tmp") as folder:
        yield folder


@pytest.mark.parametrize("recency", [None, "month"])
@pytest.mark.parametrize("name", READY)
async def test_a_provider_answers_as_its_documentation_says(place, name, recency):
    async with web(place) as service:
        service.configure(msgspec.convert(body(name), WebSearchBody))
        found = await service.search("raspberry pi gpio", 5, name, recency, ADA)
    assert found.provider == name
    assert 1 <= len(found.records) <= 5
    assert all(record.title and record.url.startswith("http") for record in found.records)


@pytest.mark.parametrize(
    ("url", "extractor", "word"),
    [
        ("https://example.com", "markdown", "documentation"),
        ("https://www.rfc-editor.org/rfc/rfc9110.txt", "text", "HTTP Semantics"),
        ("https://api.github.com/zen", "text", ""),
        ("https://www.rfc-editor.org/rfc/pdfrfc/rfc1149.txt.pdf", "pdf", "carriers"),
    ],
)
async def test_a_page_is_read(place, url, extractor, word):
    async with web(place) as service:
        fetched = await service.fetch(url, ADA, again=False, max_chars=1_000)
    assert (fetched.status, fetched.document.extractor) == (200, extractor)
    assert word in fetched.document.text
