"""`tools.skills` of the configuration."""

import pytest

from edged import sections, settings
from edged.cli.config import MASK, explained
from edged.errors import ConfigError
from edged.plugins import names
from edged.registry import FAMILIES
from edged.store import Store
from edged.tools import skills


def parse(text):
    return settings.parse(f"tools:\n  skills: {text}\n", "/etc/edged/edged.yaml")


def test_default_asks_clawhub_then_github():
    """Contract, section 11."""
    for loaded in (parse("{}"), parse("{enabled: true, registries: {clawhub: {}, github: {}}}")):
        section = loaded.section(sections.Skills)
        assert list(section.registries) == ["clawhub", "github"]
        assert section.enabled


def test_every_kind_is_a_file():
    assert names("edged.skills.registries") == ["clawhub", "directory", "github", "http"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{registries: {mine: {path: /x}}}", "needs a kind: clawhub, github, directory or http"),
        ("{registries: {mine: {kind: ftp}}}", "kind"),
        ("{registries: {mine: {kind: directory}}}", "needs the path"),
        ("{registries: {mine: {kind: directory, path: x}}}", "must be absolute"),
        ("{registries: {mine: {kind: http}}}", "needs the url"),
        ("{registries: {clawhub: {url: 'ftp://x'}}}", "must begin with http:// or https://"),
        ("{registries: {github: {repositories: [acme]}}}", "'acme' is not OWNER/REPO"),
        ("{registries: {github: {repositories: [../x]}}}", "is not OWNER/REPO"),
        ("{registries: {clawhub: {tokn: x}}}", "did you mean"),
    ],
)
def test_fault_is_told_with_its_line_and_key(text, says):

    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert says in str(caught.value)
    assert str(caught.value).startswith("/etc/edged/edged.yaml:2: tools.skills")


def test_token_is_never_shown(tmp_path):
    loaded = parse("{registries: {github: {token: plain-words}}}")
    shown = {".".join(one.path): one.value for one in explained(loaded, Store(str(tmp_path)))}
    assert shown["tools.skills.registries.github.token"] == MASK


def test_tools_require_the_family_of_skills():
    """Specification: "Requires `skills` config to be enabled"."""
    assert FAMILIES["skills"] == "requires_skills"
    for tool in skills.TOOLS:
        assert tool.requires == ("skills",)
        assert tool.category == "skills"
        assert tool.config_key == tool.name
