"""The settings of web search: what an owner sets wins, is kept, and never tells a key."""

import json
import os
import stat

import msgspec
import pytest

from edged.errors import InvalidArgumentsError, StoreError
from edged.sections import Web as Section
from edged.sections import WebProvider
from edged.store import Store
from edged.web.settings import ORDER, SettingsFile, WebSearchBody


@pytest.fixture
def made(tmp_path):
    def make(**section):
        return SettingsFile(Section(**section), Store(str(tmp_path / "state")))

    return make


def put(settings, /, **body):
    settings.change(msgspec.convert(body, WebSearchBody))
    return msgspec.to_builtins(settings.shown())


def test_a_change_holds_at_once_and_after_a_restart(made):
    settings = made(brave=WebProvider(api_key="configured"))
    put(settings, provider="brave", settings={"brave": {"max_results": 3, "api_key": " new "}})
    for now in (settings.now, made(brave=WebProvider(api_key="configured")).now):
        assert now.provider == "brave"
        assert (now.providers["brave"].max_results, now.providers["brave"].keys) == (3, ("new",))


def test_what_is_absent_keeps_its_value(made):
    """Contract, section 6: absent fields of a PUT keep their value."""
    settings = made(proxy="http://proxy.example:3128")
    whole = {"enabled": False, "max_results": 4, "api_keys": ["a", "b"], "base_url": "http://b"}
    put(settings, provider="brave", prefer_native=True, settings={"brave": whole})
    before = settings.now
    put(settings)
    put(settings, settings={"brave": {}})
    put(settings, settings={"brave": {"api_key": ""}})
    assert settings.now == before
    put(settings, settings={"brave": {"enabled": True}})
    assert settings.now.providers["brave"].enabled
    assert settings.now.providers["brave"].keys == ("a", "b")
    assert settings.now.proxy == "http://proxy.example:3128"


def test_a_list_of_keys_replaces_even_by_nothing(made):
    """Picoclaw section 14, PUT: trimmed, each once; an empty list removes."""
    settings = made(brave=WebProvider(api_keys=["old"]))
    put(settings, settings={"brave": {"api_keys": [" a ", "b", "a", ""]}})
    assert settings.now.providers["brave"].keys == ("a", "b")
    assert put(settings, settings={"brave": {"api_keys": []}})["settings"]["brave"] == {
        "enabled": True,
        "max_results": 10,
        "api_key_set": False,
    }
    assert made(brave=WebProvider(api_keys=["old"])).now.providers["brave"].keys == ()


def test_the_answer_can_be_sent_back_and_changes_nothing(made):
    settings = made(brave=WebProvider(api_key="k"), proxy="http://ada:hidden@proxy:1")
    shown = msgspec.to_builtins(settings.shown())
    before = settings.now
    assert put(settings, **shown) == shown
    assert settings.now == before


def test_no_answer_holds_a_key_or_a_password(made, tmp_path):
    settings = made(brave=WebProvider(api_key="key-one"), proxy="http://ada:hidden@proxy:1")
    shown = put(settings, settings={"tavily": {"api_keys": ["key-two"]}})
    text = json.dumps(shown)
    assert "key-" not in text
    assert "hidden" not in text
    assert shown["proxy"] == "http://ada:***@proxy:1"
    assert shown["settings"]["tavily"]["api_key_set"] is True


def test_keys_have_a_file_of_their_own_that_others_cannot_read(made, tmp_path):
    """Contract, section 3: secrets in files of their own of mode 0600."""
    settings = made()
    put(settings, provider="kagi", proxy="http://a:b@c", settings={"kagi": {"api_key": "k-1"}})
    files = {name: tmp_path / "state" / name for name in os.listdir(tmp_path / "state")}
    assert files.keys() == {"web-search.json", "web-search-keys.json"}
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in files.values())
    open_text = files["web-search.json"].read_text()
    assert "k-1" not in open_text
    assert "a:b@c" not in open_text


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"provider": "google"}, "provider"),
        ({"proxy": "ftp://x"}, "proxy"),
        ({"settings": {"brave": {"api_key": "a\nb"}}}, "settings.brave"),
        ({"settings": {"google": {"enabled": True}}}, "settings.google"),
        ({"settings": {"searxng": {"base_url": "searx.example"}}}, "settings.searxng.base_url"),
    ],
)
def test_what_is_wrong_is_told_by_its_place_and_changes_nothing(made, body, place):
    settings = made()
    before = settings.now
    with pytest.raises(InvalidArgumentsError) as told:
        put(settings, settings=body.pop("settings", {"brave": {"api_key": "k"}}), **body)
    assert [fault.path for fault in told.value.faults] == [place]
    assert settings.now == before


@pytest.mark.parametrize(("given", "kept"), [("glm", "glm_search"), ("baidu", "baidu_search")])
def test_aliases_are_kept_as_what_they_stand_for(made, given, kept):
    settings = made()
    shown = put(settings, provider=given, settings={given: {"api_key": "k"}})
    assert shown["provider"] == kept
    assert shown["settings"][kept]["api_key_set"] is True
    assert put(settings, provider="")["provider"] == "auto"


def test_the_provider_that_is_asked_first_is_current(made):
    """Picoclaw section 14: resolved from what is ready."""
    rows = made(brave=WebProvider(api_key="k")).shown()
    assert rows.current_service == "brave"
    assert [row.id for row in rows.providers if row.current] == ["brave"]
    assert {row.id for row in rows.providers if row.configured} == {
        "brave",
        "duckduckgo",
        "sogou",
    }
    assert [row.id for row in rows.providers] == list(ORDER)
    assert made(provider="brave").shown().current_service == "duckduckgo"
    assert made(enabled=False).shown().current_service == ""


def test_a_full_disk_changes_nothing(made, monkeypatch):
    settings = made()
    before = settings.now

    def full(*_):
        raise StoreError("no space left")

    monkeypatch.setattr(Store, "save", full)
    with pytest.raises(StoreError):
        put(settings, provider="brave", settings={"brave": {"api_key": "k"}})
    assert settings.now == before


def test_a_broken_file_is_set_aside_and_the_configuration_holds(made, tmp_path):
    settings = made()
    put(settings, settings={"brave": {"api_key": "first"}})
    put(settings, settings={"brave": {"api_key": "second"}})
    (tmp_path / "state" / "web-search-keys.json").write_text("{")
    assert made().now.providers["brave"].keys == ("first",)
    assert (tmp_path / "state" / "web-search-keys.json.broken").exists()
