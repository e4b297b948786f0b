"""Plugin folders: a file is a plugin and its file name is its key.

Nothing registers itself on import, and only what is asked for is imported.
Works on a tree of `.pyc` files alone: names come from the import system, not
from a directory listing.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from types import ModuleType

from edged import yamlio
from edged.errors import ConfigError

LISTED_MAX = 12
"""Names that a message lists; more are a wall."""


def names(package: str) -> list[str]:
    """The plugins of a package, sorted; names with a leading underscore are its own parts.

    Args:
        package: dotted name, `edged.drivers`.
    """
    found = pkgutil.iter_modules(importlib.import_module(package).__path__)
    return sorted(module.name for module in found if not module.name.startswith("_"))


def load(package: str, name: str) -> ModuleType:
    """Imports one plugin.

    Raises:
        ConfigError: no plugin of that name; the message says which one may be meant, or
            lists them where they are few.
    """
    qualified = f"{package}.{name}"
    # Listing the folder costs more than finding one of its files.
    is_plugin = name.isidentifier() and not name.startswith("_")
    if not is_plugin or importlib.util.find_spec(qualified) is None:
        known = names(package)
        kind = package.rpartition(".")[2]
        guess = yamlio.nearest(name, known)
        if guess:
            raise ConfigError(f"{name!r} is not one of {kind}; did you mean {guess!r}?")
        there = ", ".join(known) if len(known) <= LISTED_MAX else f"there are {len(known)}"
        raise ConfigError(f"{name!r} is not one of {kind}: {there or 'none'}")
    return importlib.import_module(qualified)
