"""The programs that run a tool inside its sandbox: where they are, how they start.

Pure but for the look at where this package lies. `hosts/` is shown inside at
/edged, read-only; the tool's entry file is named as it is seen inside.
"""

from __future__ import annotations

import os

from edged.sandbox.profile import Bind
from edged.sandbox.run import Language

INSIDE = "/edged"
NODE_INSIDE = "/edged-node"

_HOSTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hosts")


def binds(node: str = "") -> tuple[Bind, ...]:
    """What a host needs to see, beside the system.

    Args:
        node: absolute path of a Node outside /usr, such as a wheel's; else empty.
    """
    hosts = Bind(source=_HOSTS, target=INSIDE)
    return (hosts, Bind(source=node, target=NODE_INSIDE)) if node else (hosts,)


def command(language: Language, entry: str, node: str = "/usr/bin/node") -> tuple[str, ...]:
    """The command that loads a tool and waits for its call.

    Args:
        language: of the tool.
        entry: its entry file as seen inside.
        node: the Node to use, as seen inside: the system's, or `NODE_INSIDE`.
    """
    match language:
        case "python":
            return ("/usr/bin/python3", "-s", "-u", f"{INSIDE}/host.py", entry)
        case "bash":
            return ("/bin/bash", f"{INSIDE}/host.sh", entry)
        case "typescript":
            return (node, "--disable-warning=ExperimentalWarning", f"{INSIDE}/host.mjs", entry)
