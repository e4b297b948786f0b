"""Reads a SKILL.md: its facts and its body.

Pure. Lenient as the Agent Skills guide asks for: a skill without a description is not
loaded, nor is one whose YAML cannot be read; every other fault is a warning.

Source: Agent Skills specification; its guide "Adding skills support".
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from edged import yamlio
from edged.errors import ConfigError
from edged.skills import names
from edged.toolmd import frontmatter

FILES = ("SKILL.md", "skill.md")
"""The first that is there is read."""

DESCRIPTION_MAX = 1_024
COMPATIBILITY_MAX = 500

_COLON_VALUE = re.compile(r"^([\w-]+):[ \t]+(?![\"'|>{\[&*!])(\S.*:(?:[ \t].*|))$")


class Facts(msgspec.Struct, frozen=True):
    """What a SKILL.md says.

    Attributes:
        name: as it names itself; empty where it does not.
        description: one line.
        license: as it is.
        compatibility: what it needs, for people.
        metadata: further facts as text.
        allowed_tools: tools that it would use; grants nothing.
        warnings: faults that it is loaded with.
        body: its instructions.
    """

    name: str
    description: str
    license: str
    compatibility: str
    metadata: dict[str, str]
    allowed_tools: tuple[str, ...]
    warnings: tuple[str, ...]
    body: str

    @property
    def version(self) -> str:
        """What `metadata.version` says; empty where it does not."""
        return names.line(self.metadata.get("version", ""), 64)


def read(data: bytes, directory: str, file: str = FILES[0]) -> Facts:
    """Read one.

    Args:
        data: its bytes.
        directory: name of the directory that it is in, which its own should equal.
        file: for messages.

    Raises:
        ConfigError: it cannot be loaded; with the line, and what to write.
    """
    front = frontmatter.split(data, file)
    value, warnings = _loaded(front, file)
    if not isinstance(value, dict):
        raise ConfigError(
            "the front matter has no keys: write `name:` and `description:`", file=file
        )
    fields = _Fields(value, warnings)
    description = names.line(value.get("description"), DESCRIPTION_MAX * 4)
    if not description:
        reason = "is missing: say in a sentence what it does and when to use it"
        raise ConfigError(reason, file=file, line=2, key="description")
    if len(description) > DESCRIPTION_MAX:
        warnings.append(f"description: over {DESCRIPTION_MAX} characters; its beginning is shown")
        description = names.line(description, DESCRIPTION_MAX)
    name = fields.text("name")
    if not name:
        warnings.append("name: is missing; the directory's is used")
    elif names.key(name) != names.key(directory):
        warnings.append(f"name: {names.line(name, 64)!r} is not the directory's, {directory!r}")
    elif names.faults(name):
        warnings.append(f"name: {names.faults(name)}")
    compatibility = fields.text("compatibility")
    if len(compatibility) > COMPATIBILITY_MAX:
        warnings.append(f"compatibility: over {COMPATIBILITY_MAX} characters")
    return Facts(
        names.line(name, names.SLUG_MAX),
        description,
        names.line(fields.text("license"), 200),
        names.line(compatibility, COMPATIBILITY_MAX),
        fields.metadata(),
        fields.tools(),
        tuple(warnings),
        front.body.strip(),
    )


def _loaded(front: frontmatter.FrontMatter, file: str) -> tuple[Any, list[str]]:
    """The front matter's value; once more with quotes where a value has a colon in it."""
    try:
        found = yamlio.load(front.yaml_text, file, first_line=front.yaml_first_line)
        return found.value, []
    except ConfigError as error:
        quoted = "\n".join(_quoted(one) for one in front.yaml_text.split("\n"))
        if quoted == front.yaml_text:
            raise
        try:
            found = yamlio.load(quoted, file, first_line=front.yaml_first_line)
        except ConfigError:
            raise error from None
        return found.value, [f"line {error.line}: a value with a colon needs quotes"]


def _quoted(one: str) -> str:
    match = _COLON_VALUE.match(one)
    if match is None:
        return one
    value = match[2].rstrip().replace("\\", "\\\\").replace('"', '\\"')
    return f'{match[1]}: "{value}"'


class _Fields:
    """Optional fields, each of which may be of any type."""

    def __init__(self, value: dict[str, Any], warnings: list[str]) -> None:
        self._value = value
        self._warnings = warnings

    def text(self, key: str) -> str:
        found = self._value.get(key)
        if isinstance(found, str) or found is None:
            return found or ""
        if isinstance(found, bool | int | float):
            self._warnings.append(f"{key}: is no text; quote it")
            return _text(found)
        self._warnings.append(f"{key}: must be text")
        return ""

    def metadata(self) -> dict[str, str]:
        found = self._value.get("metadata")
        if found is None:
            return {}
        if not isinstance(found, dict):
            self._warnings.append("metadata: must be a mapping")
            return {}
        return {str(k): _text(v) for k, v in found.items() if not isinstance(v, dict | list)}

    def tools(self) -> tuple[str, ...]:
        """By spaces, by commas or as a list; what stands in parentheses stays together."""
        found = self._value.get("allowed-tools")
        if found is None:
            return ()
        if isinstance(found, list):
            return tuple(str(one).strip() for one in found if str(one).strip())
        if not isinstance(found, str):
            self._warnings.append("allowed-tools: must be text")
            return ()
        return tuple(re.findall(r"(?:[^\s,(]|\([^)]*\)?)+", found))


def _text(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: ""}[value]
    return str(value)
