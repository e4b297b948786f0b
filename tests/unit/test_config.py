"""The Structs of edged.yaml: defaults, ranges, and what a fault says."""

import msgspec
import pytest

from edged.config import (
    Audit,
    Config,
    Defaults,
    Http,
    MediaSettings,
    Sandbox,
    Section,
    ToolSettings,
    UserEntry,
    seconds,
    size,
)
from edged.sections import McpServer


def test_the_defaults_are_those_of_the_contract():
    """Contract, sections 4, 10 and 11."""
    config = Config()
    assert config.http.listen == ["127.0.0.1:8420"]
    assert (Defaults().network, Defaults().timeout, Defaults().memory) == (False, 60, "256M")
    assert (config.sandbox.warm_memory, config.sandbox.limits) == ("auto", "auto")
    assert config.users == {}


def sections(kind=Section):
    for child in kind.__subclasses__():
        yield child
        yield from sections(child)


@pytest.mark.parametrize("kind", list(sections()))
def test_an_unknown_key_is_refused_everywhere(kind):
    """Contract, section 11: an unknown key stops the start."""
    given = {"user": "a@example.org"} if kind is UserEntry else {}
    with pytest.raises(msgspec.ValidationError, match="unknown field `nonsense`"):
        msgspec.convert({**given, "nonsense": 1}, kind)


@pytest.mark.parametrize("kind", list(sections()))
def test_defaults_pass_their_own_checks(kind):
    needed = {UserEntry: {"user": "a@example.org"}, McpServer: {"command": "npx"}}
    given = needed.get(kind, {})
    defaults = msgspec.convert(given, kind)
    msgspec.convert(msgspec.to_builtins(defaults), kind)


@pytest.mark.parametrize(
    ("kind", "field", "value", "reason"),
    [
        (Http, "max_body", "16Q", "max_body: '16Q' is not a size"),
        (Http, "max_body", 1, "max_body: must be from 1K to 1G"),
        (Http, "max_body", "2G", "max_body: must be from"),
        (Defaults, "memory", "8M", "memory: must be from 16M to 1024G"),
        (Defaults, "memory", -1, "memory: -1 is not a size"),
        (Defaults, "timeout", 0, "timeout: must be from 1s to 1h"),
        (Defaults, "timeout", "2h", "timeout: must be from 1s to 1h"),
        (Defaults, "timeout", "soon", "timeout: 'soon' is not a duration"),
        (Defaults, "timeout", float("nan"), "timeout: nan is not a duration"),
        (Sandbox, "warm_memory", "much", "warm_memory: 'much' is not a size"),
        (Sandbox, "idle", "2d", "idle: must be from 0s to 1d"),
        (MediaSettings, "item", 0, "item: must be from"),
        (MediaSettings, "total", "1", "total: must be from"),
        (MediaSettings, "age", 0, "age: must be from 1s to 366d"),
        (Audit, "size", "1K", "size: must be from 64K to 16G"),
        (Audit, "interval", -5, "interval: -5 is not a duration"),
        (Config, "stop_grace", float("inf"), "stop_grace: inf is not a duration"),
        (Config, "users", {"ada": "ada@example.org"}, "users.ada: 'ada' is not a uid"),
        (Config, "users", {"01000": "ada@example.org"}, "users.01000: '01000' is not a uid"),
        (Config, "users", {"²": "ada@example.org"}, "users.²: '²' is not a uid"),
        (Config, "users", {"1000": "ada"}, "users.1000: 'ada' is not an e-mail identity"),
        (UserEntry, "user", "../x", "user: '../x' is not an e-mail identity"),
    ],
)
def test_a_rule_names_its_field_and_what_to_write(kind, field, value, reason):
    """The reader of the file finds the line by the name before the colon."""
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert({field: value}, kind)
    assert str(caught.value).startswith(reason)


@pytest.mark.parametrize("limits", [{"timeout": 1, "memory": "16M"}, {"timeout": "1h"}])
def test_the_bounds_themselves_are_allowed(limits):
    """Contract, section 10: `timeout` 1-3600."""
    assert msgspec.to_builtins(msgspec.convert(limits, Defaults)).items() >= limits.items()


@pytest.mark.parametrize("value", ["auto", 0, "0", "64M"])
def test_warm_memory_is_auto_or_a_size(value):
    """Contract, section 11: `sandbox: {warm_memory: auto}`."""
    assert msgspec.convert({"warm_memory": value}, Sandbox).warm_memory == value


@pytest.mark.parametrize("user", ["ada@example.org", "local", "a.b+c_d-e@sub.example.org"])
def test_a_local_user_may_be_mapped(user):
    """Contract, section 11: `users: {1000: ada@example.org, 1001: {user: …, role: owner}}`."""
    config = msgspec.convert(
        {"users": {"1000": user, "0": {"user": user, "role": "owner"}}}, Config
    )
    assert config.users == {"1000": user, "0": UserEntry(user=user, role="owner")}


@pytest.mark.parametrize("env", [{"A": None}, {"A": ["x"]}, {"A": {"b": 1}}])
def test_variables_are_plain_values(env):
    """execve(2): a variable is text."""
    with pytest.raises(msgspec.ValidationError, match="env"):
        msgspec.convert({"env": env}, ToolSettings)
    given = {"A": "x", "B": 1, "C": 1.5, "D": True}
    assert msgspec.convert({"env": given}, ToolSettings).env == given


def test_settings_are_read_as_people_write_them():
    assert (seconds("5m"), seconds(60), size("64K"), size(4096)) == (300.0, 60.0, 65536, 4096)
