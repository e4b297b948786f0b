"""What a registry of skills is; a file here is a kind, and its file name is its key.

A kind's module has a class `Registry`; only those that are configured are imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Protocol

import msgspec

from edged.errors import NotFoundError
from edged.sections import SkillRegistry
from edged.skills.stage import Stage

if TYPE_CHECKING:
    from edged.skills.client import Client

DESCRIPTION_MAX = 300
"""Characters of a stranger's description of a skill."""


class MismatchError(NotFoundError):
    """The skill is there, but not as it was asked for; no other registry is asked."""


class Hit(msgspec.Struct, frozen=True):
    """One skill that was found.

    Attributes:
        registry: its name in the configuration.
        name: to install it by.
        title: as people call it.
        description: one line.
        version: the newest; empty where that is not known.
        note: what to know before; empty as a rule.
    """

    registry: str
    name: str
    title: str
    description: str
    version: str = ""
    note: str = ""


class Release(msgspec.Struct, frozen=True):
    """One version of a skill, found and not yet fetched.

    Attributes:
        registry: its name in the configuration.
        reference: of the skill in the registry, whole.
        name: of the directory that it becomes.
        version: as the registry has it.
        files: SHA-256 by path where the registry tells; what is fetched must be these.
        digest: SHA-256 of the archive or file where the registry tells.
        url: where the archive or file is, for registries that are asked by it.
        inside: directory of the skill in what is fetched; empty: look for it.
        suspicious: what the registry holds against it; empty as a rule.
    """

    registry: str
    reference: str
    name: str
    version: str
    files: dict[str, str] | None = None
    digest: str = ""
    url: str = ""
    inside: str = ""
    suspicious: str = ""


class Fetched(Protocol):
    """Something fetched, to be unpacked."""

    def __call__(self, stage: Stage) -> None:
        """Fill the stage. Blocking calls; any thread.

        Raises:
            RemoteProtocolError: it is refused.
            OSError: it cannot be read or written.
        """


class Registry(Protocol):
    """One configured registry."""

    name: str

    def __init__(
        self, name: str, settings: SkillRegistry, others: dict[str, SkillRegistry]
    ) -> None:
        """A registry; nothing is asked yet.

        Args:
            name: in the configuration.
            settings: of it.
            others: all that are configured, by name.
        """

    def owns(self, reference: str) -> str:
        """What a URL means here; empty where it is not of this registry."""

    async def search(self, client: Client, query: str, limit: int) -> list[Hit]:
        """Skills by words, best first.

        Raises:
            EdgedError: it cannot be asked.
        """

    async def resolve(self, client: Client, reference: str, version: str) -> Release:
        """The version that is meant; the newest where `version` is empty.

        Raises:
            MismatchError: the skill is there, and not that version.
            NotFoundError: no such skill.
            RemoteProtocolError: it is there, and is broken.
            DeniedError: it is withdrawn, blocked or taken for malware.
            EdgedError: it cannot be asked.
        """

    async def fetch(self, client: Client, release: Release, spool: BinaryIO) -> Fetched:
        """Fetch it.

        Args:
            client: to ask with.
            release: that was resolved.
            spool: an empty file to fetch into, open for reading and writing.

        Raises:
            EdgedError: it cannot be fetched.
        """


def matches(query: str, *texts: str) -> int:
    """How well texts fit words: the number of words found, names before descriptions."""
    words = query.casefold().split()
    score = 0
    for weight, text in zip((3, 1, 1), texts, strict=False):
        folded = text.casefold()
        score += sum(weight for word in words if word in folded)
    return score


def rewind(spool: BinaryIO) -> None:
    """Make a spool empty again."""
    spool.seek(0)
    spool.truncate()
