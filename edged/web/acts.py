"""What owners set of web search at run time, by its keys in the configuration."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import msgspec
from msgspec import UNSET

from edged.acts import Held
from edged.store import Store
from edged.web.settings import ACTS, MASK, SECRETS, Acts, ProviderAct, Secrets

ROOT = "tools.web"


class WebSearch:
    """An `edged.acts.Acts`; neither keys nor the proxy, which may hold a password, are told."""

    def __init__(self, store: Store, changed: Callable[[], None] = lambda: None) -> None:
        """The settings of a data directory.

        Args:
            store: has them.
            changed: reads what is left from then on.
        """
        self._store = store
        self._changed = changed

    def held(self) -> dict[str, Held]:
        """Each as the configuration names it."""
        acts, secrets = self._store.peek(ACTS, Acts, Acts()), self._secrets(self._store.peek)
        file, secret_file = self._store.path(ACTS), self._store.path(SECRETS)
        found = {
            f"{ROOT}.{name}": Held(value, file)
            for name in ("provider", "prefer_native")
            if (value := getattr(acts, name)) is not UNSET
        }
        for provider, act in acts.providers.items():
            for name, value in msgspec.to_builtins(act).items():
                found[f"{ROOT}.{provider}.{name}"] = Held(value, file)
        if secrets.proxy is not UNSET:
            found[f"{ROOT}.proxy"] = Held(MASK if secrets.proxy else "", secret_file)
        for provider, keys in secrets.keys.items():
            found[f"{ROOT}.{provider}.api_keys"] = Held([MASK] * len(keys), secret_file)
        return found

    def drop(self, keys: Collection[str]) -> None:
        """Forget some."""
        acts, secrets = self._store.load(ACTS, Acts, Acts()), self._secrets(self._store.load)
        top = {name: UNSET for name in ("provider", "prefer_native") if f"{ROOT}.{name}" in keys}
        providers = {name: _left(name, act, keys) for name, act in acts.providers.items()}
        providers = {name: act for name, act in providers.items() if act != ProviderAct()}
        self._store.save(ACTS, msgspec.structs.replace(acts, **top, providers=providers))
        kept = {n: one for n, one in secrets.keys.items() if f"{ROOT}.{n}.api_keys" not in keys}
        proxy = UNSET if f"{ROOT}.proxy" in keys else secrets.proxy
        self._store.save(SECRETS, Secrets(proxy, kept))
        self._changed()

    def _secrets(self, read: Callable[..., Any]) -> Secrets:
        secrets: Secrets = read(SECRETS, Secrets, Secrets())
        return secrets


def _left(name: str, act: ProviderAct, keys: Collection[str]) -> ProviderAct:
    gone = [f for f in act.__struct_fields__ if f"{ROOT}.{name}.{f}" in keys]
    return msgspec.structs.replace(act, **dict.fromkeys(gone, UNSET))
