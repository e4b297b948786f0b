"""What holds for web search: the configuration, and what an owner set since.

An owner's act is kept below the data directory and wins; keys and the proxy, which
may hold a password, have a file of their own. Both are readable by the daemon alone.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated, Any
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import UNSET, Meta, UnsetType

from edged import plugins
from edged.config import fault_of_url
from edged.errors import Fault, InvalidArgumentsError
from edged.libraries import install
from edged.sections import PROXIES, WebProvider
from edged.sections import Web as Section
from edged.store import Store
from edged.web.guard import is_near
from edged.web.providers import Info

ORDER = (
    "perplexity",
    "brave",
    "kagi",
    "searxng",
    "tavily",
    "duckduckgo",
    "sogou",
    "baidu_search",
    "glm_search",
)
"""Every provider, in the order in which `auto` asks them."""

ALIASES = {"glm": "glm_search", "baidu": "baidu_search", "": "auto"}

ACTS, SECRETS = "web-search", "web-search-keys"
"""Files of `edged.store.Store`."""

ERROR_SHOWN = 200
"""Characters of a provider's own words about a failure."""

MASK = "***"

KEY_MIN = 6
"""Characters from which on a key is looked for: a shorter one is a word (contract, section 7)."""

KEYS_MAX = 32
TEXT_MAX = 1_024


class ProviderAct(msgspec.Struct, frozen=True):
    """What an owner set of one provider; unset is as in the configuration."""

    enabled: bool | UnsetType = UNSET
    max_results: int | UnsetType = UNSET
    base_url: str | UnsetType = UNSET


class Acts(msgspec.Struct, frozen=True):
    """What an owner set."""

    provider: str | UnsetType = UNSET
    prefer_native: bool | UnsetType = UNSET
    providers: dict[str, ProviderAct] = {}


class Secrets(msgspec.Struct, frozen=True):
    """Likewise, what nobody is shown."""

    proxy: str | UnsetType = UNSET
    keys: dict[str, list[str]] = {}


class ProviderSettings(msgspec.Struct, frozen=True):
    """What holds for one provider."""

    enabled: bool
    max_results: int
    keys: tuple[str, ...]
    base_url: str


class ProviderRow(msgspec.Struct, frozen=True):
    """One provider as a client shows it; `current` is asked first."""

    id: str
    label: str
    configured: bool
    current: bool
    requires_auth: bool


class ProviderShown(msgspec.Struct, frozen=True, omit_defaults=True):
    """One provider's settings without its keys."""

    enabled: bool
    max_results: int
    api_key_set: bool
    base_url: str = ""


class WebSearchConfig(msgspec.Struct, frozen=True):
    """The settings of web search; keys are never among them."""

    provider: str
    current_service: str
    prefer_native: bool
    proxy: str
    providers: list[ProviderRow]
    settings: dict[str, ProviderShown]


_Text = Annotated[str, Meta(max_length=TEXT_MAX)]


class ProviderBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """New settings of one provider; what is absent keeps its value."""

    enabled: bool | UnsetType = UNSET
    max_results: Annotated[int, Meta(ge=1, le=50)] | UnsetType = UNSET
    api_key: _Text | UnsetType = UNSET
    api_keys: Annotated[list[_Text], Meta(max_length=KEYS_MAX)] | UnsetType = UNSET
    base_url: _Text | UnsetType = UNSET
    api_key_set: bool | UnsetType = UNSET
    """Read back from an answer; changes nothing."""


class WebSearchBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """New settings of web search; what is absent keeps its value."""

    provider: _Text | UnsetType = UNSET
    prefer_native: bool | UnsetType = UNSET
    proxy: _Text | UnsetType = UNSET
    settings: dict[str, ProviderBody] = {}
    current_service: str | UnsetType = UNSET
    """Read back from an answer, like the next; changes nothing."""
    providers: list[Any] | UnsetType = UNSET


class Settings(msgspec.Struct, frozen=True):
    """What holds now."""

    provider: str
    prefer_native: bool
    proxy: str
    providers: dict[str, ProviderSettings]

    def problem(self, name: str) -> str:
        """Why a provider cannot be asked, and what to do; empty when it can."""
        one, info = self.providers[name], info_of(name)
        if not one.enabled:
            return "is disabled"
        if info.needs_key and not one.keys:
            return f"has no key: set tools.web.{name}.api_key"
        if not self.base(name, info):
            return f"has no server: set tools.web.{name}.base_url"
        if info.page_form and find_spec("justhtml") is None:
            return f"needs justhtml: {install('edged[web]')}"
        return ""

    def base(self, name: str, info: Info) -> str:
        """Where a provider's server is."""
        return (self.providers[name].base_url or info.base).rstrip("/")

    def proxy_for(self, url: str) -> str:
        """The proxy, but for a server on this board or its network."""
        return "" if is_near(urlsplit(url).hostname or "") else self.proxy

    def masked(self, text: str) -> str:
        """A provider's words, short and without any key, as it is or as a URL or JSON has it."""
        keys = [key for one in self.providers.values() for key in one.keys]
        for key in sorted(keys, key=len, reverse=True):
            for form in (key, quote(key, safe=""), key.replace("/", "\\/")):
                if len(key) >= KEY_MIN:
                    text = text.replace(form, MASK)
        # Cut after that: the beginning of a key would not be known for one.
        return text if len(text) <= ERROR_SHOWN else f"{text[:ERROR_SHOWN]}…"


def info_of(name: str) -> Info:
    """What a provider is."""
    info: Info = plugins.load("edged.web.providers", name).INFO
    return info


class SettingsFile:
    """The settings and their two files. Loop thread only.

    Args:
        section: of the configuration.
        store: of the data directory.
    """

    def __init__(self, section: Section, store: Store) -> None:
        self._section = section
        self._store = store
        self.reload()

    def reload(self) -> None:
        """Read the files anew."""
        self._acts = self._store.load(ACTS, Acts, Acts())
        self._secrets = self._store.load(SECRETS, Secrets, Secrets())
        self.now = self._merged(self._acts, self._secrets)

    def shown(self) -> WebSearchConfig:
        """The settings as a client sees them."""
        now = self.now
        ready = [name for name in ORDER if not now.problem(name)]
        current = now.provider if now.provider in ready else next(iter(ready), "")
        if not self._section.enabled:
            current = ""
        rows = []
        for name in ORDER:
            info = info_of(name)
            is_ready, is_current = name in ready, name == current
            rows.append(ProviderRow(name, info.label, is_ready, is_current, info.needs_key))
        settings = {
            name: ProviderShown(one.enabled, one.max_results, bool(one.keys), one.base_url)
            for name, one in now.providers.items()
        }
        proxy = _hidden(now.proxy)
        return WebSearchConfig(now.provider, current, now.prefer_native, proxy, rows, settings)

    def change(self, body: WebSearchBody) -> None:
        """Take new settings; on return they are on disk and hold.

        Raises:
            InvalidArgumentsError: something is wrong with them, and nothing changed.
            StoreError: the disk does not take them, and nothing changed.
        """
        faults: list[Fault] = []
        acts, secrets = self._acts, self._secrets
        if isinstance(body.provider, str):
            provider = _id(body.provider, ("auto", *ORDER), "provider", faults)
            acts = msgspec.structs.replace(acts, provider=provider)
        if body.prefer_native is not UNSET:
            acts = msgspec.structs.replace(acts, prefer_native=body.prefer_native)
        if isinstance(body.proxy, str) and body.proxy != _hidden(self.now.proxy):
            if fault := fault_of_url(body.proxy, PROXIES):
                faults.append(Fault("proxy", fault))
            secrets = msgspec.structs.replace(secrets, proxy=body.proxy)
        providers, keys = dict(acts.providers), dict(secrets.keys)
        for given, one in body.settings.items():
            name = _id(given, ORDER, f"settings.{given[:64]}", faults)
            if isinstance(one.base_url, str) and (fault := fault_of_url(one.base_url)):
                faults.append(Fault(f"settings.{given[:64]}.base_url", fault))
            providers[name] = _changed(providers.get(name, ProviderAct()), one)
            new = _keys_of(one)
            if new is not None:
                keys[name] = new
                if not all(key.isascii() and key.isprintable() for key in new):
                    place = f"settings.{given[:64]}"
                    faults.append(Fault(place, "a key has characters that no header may have"))
        if faults:
            raise InvalidArgumentsError(faults)
        self._keep(
            msgspec.structs.replace(acts, providers=providers),
            msgspec.structs.replace(secrets, keys=keys),
        )

    def _keep(self, acts: Acts, secrets: Secrets) -> None:
        if secrets != self._secrets:
            self._store.save(SECRETS, secrets)
            self._secrets = secrets
            self.now = self._merged(self._acts, secrets)
        if acts != self._acts:
            self._store.save(ACTS, acts)
            self._acts = acts
            self.now = self._merged(acts, secrets)

    def _merged(self, acts: Acts, secrets: Secrets) -> Settings:
        section = self._section
        providers = {}
        for name in ORDER:
            base: WebProvider = getattr(section, name)
            act = acts.providers.get(name, ProviderAct())
            keys = _unique([base.api_key, *base.api_keys])
            providers[name] = ProviderSettings(
                _either(act.enabled, base.enabled),
                _either(act.max_results, base.max_results),
                tuple(secrets.keys.get(name, keys)),
                _either(act.base_url, base.base_url),
            )
        configured = ALIASES.get(section.provider, section.provider)
        return Settings(
            _either(acts.provider, configured),
            _either(acts.prefer_native, section.prefer_native),
            _either(secrets.proxy, section.proxy),
            providers,
        )


def _id(given: str, known: tuple[str, ...], place: str, faults: list[Fault]) -> str:
    """A provider's id; one that is not known is a fault."""
    name = ALIASES.get(given, given)
    if name not in known:
        faults.append(Fault(place, f"is not known; there are {', '.join(known)}"))
    return name


def _either(act: Any, configured: Any) -> Any:
    return configured if act is UNSET else act


def _changed(act: ProviderAct, body: ProviderBody) -> ProviderAct:
    given = {"enabled": body.enabled, "max_results": body.max_results, "base_url": body.base_url}
    return msgspec.structs.replace(act, **{k: v for k, v in given.items() if v is not UNSET})


def _keys_of(body: ProviderBody) -> list[str] | None:
    """New keys; None keeps those that there are. A list, even an empty one, replaces them."""
    if isinstance(body.api_keys, list):
        return _unique(body.api_keys)
    if isinstance(body.api_key, str) and body.api_key.strip():
        return _unique([body.api_key])
    return None


def _unique(keys: list[str]) -> list[str]:
    return list(dict.fromkeys(key.strip() for key in keys if key.strip()))


def _hidden(proxy: str) -> str:
    """A proxy's address without its password."""
    parts = urlsplit(proxy)
    if not parts.password:
        return proxy
    _, _, host = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{parts.username}:{MASK}@{host}").geturl()
