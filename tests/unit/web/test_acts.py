"""What owners set of web search, dropped key by key (contract, section 3)."""

import msgspec
import pytest

from edged.acts import Held, reset
from edged.errors import NotFoundError
from edged.sections import Web as Section
from edged.store import Store
from edged.web.acts import WebSearch
from edged.web.settings import SettingsFile, WebSearchBody

BODY = b"""{"provider": "brave", "proxy": "http://ada:pass@proxy:3128", "settings":
    {"brave": {"max_results": 3, "api_keys": ["first-key", "second-key"]},
     "searxng": {"base_url": "http://127.0.0.1:8888"}}}"""


@pytest.fixture
def store(tmp_path):
    made = Store(f"{tmp_path}/state")
    SettingsFile(Section(), made).change(msgspec.json.decode(BODY, type=WebSearchBody))
    return made


def test_what_was_set_is_told_without_a_secret(store):
    held = WebSearch(store).held()
    acts, secrets = store.path("web-search"), store.path("web-search-keys")
    assert held == {
        "tools.web.provider": Held("brave", acts),
        "tools.web.brave.max_results": Held(3, acts),
        "tools.web.searxng.base_url": Held("http://127.0.0.1:8888", acts),
        "tools.web.proxy": Held("***", secrets),
        "tools.web.brave.api_keys": Held(["***", "***"], secrets),
    }


def test_a_key_is_dropped_on_disk_and_in_use_and_the_file_holds_again(store):
    now = SettingsFile(Section(provider="kagi"), store)
    part = WebSearch(store, now.reload)
    dropped = reset([part], "tools.web.brave")
    assert set(dropped) == {"tools.web.brave.max_results", "tools.web.brave.api_keys"}
    brave = now.now.providers["brave"]
    assert (brave.max_results, brave.keys) == (10, ())
    assert now.now.provider == "brave"
    reset([part], "tools.web")
    assert (now.now.provider, now.now.proxy) == ("kagi", "")
    assert part.held() == {}
    assert (
        SettingsFile(Section(), store).now == SettingsFile(Section(), Store(store.path("x"))).now
    )
    with pytest.raises(NotFoundError):
        reset([part], "tools.web")
