"""`messages:` of the configuration: checked with file and line (contract, section 11)."""

import pytest

from edged import plugins, settings
from edged.errors import ConfigError
from edged.messages import Surroundings
from edged.messages._channels import configured, open_channels
from edged.sections import Messages

HEAD = "messages:\n  channels:\n    one:\n"


def channels_of(text):
    loaded = settings.parse(text, "edged.yaml")
    try:
        return list(configured(loaded.section(Messages).channels))
    except ConfigError as error:
        raise loaded.located(error) from None


def test_the_contract_s_example_is_a_channel(core):
    """Contract, section 11."""
    text = "messages: {default: ntfy, channels: {ntfy: {kind: webhook, url: 'https://x.org/y'}}}"
    section = settings.parse(text, "edged.yaml").section(Messages)
    around = Surroundings(core.clock, core.events.publish, core.media.put)
    assert list(open_channels(section.channels, around)) == ["ntfy"]
    assert section.default == "ntfy"


def test_kinds_are_the_files_of_the_package():
    """Architecture: a file is a plugin and its file name is its key."""
    kinds = ["email", "events", "mqtt", "ntfy", "telegram", "webhook"]
    assert plugins.names("edged.messages") == kinds


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        ("      kind: telegramm", "edged.yaml:4: messages.channels.one.kind: 'telegramm' is not a kind of channel; did you mean 'telegram'?"),
        ("      kind: 5", "edged.yaml:4: messages.channels.one.kind: '5' is not a kind of channel: email, events"),
        ("      topic: x", "edged.yaml:3: messages.channels.one: kind is missing: one of email, events"),
        ("      kind: ntfy\n      topc: x", "edged.yaml:5: messages.channels.one.topc: unknown key; did you mean 'topic'?"),
        ("      kind: ntfy\n      topic: a/b", "edged.yaml:5: messages.channels.one.topic: has A-Z"),
        ("      kind: ntfy\n      topic: 5", "edged.yaml:5: messages.channels.one.topic: "),
        ("      kind: webhook\n      url: ftp://x", "edged.yaml:5: messages.channels.one.url: is no address"),
        ("      kind: webhook\n      url: http://x\n      secret: whsec_!", "edged.yaml:6: messages.channels.one.secret: is not base64"),
        ("      kind: telegram\n      token: abc", "edged.yaml:5: messages.channels.one.token: is none of a bot"),
        ("      kind: email\n      host: x\n      from: me", "edged.yaml:6: messages.channels.one.from: 'me' is no address"),
        ("      kind: events\n      max_file: 1T", "edged.yaml:5: messages.channels.one.max_file: "),
        ("      kind: webhook\n      url: http://x\n      ca_file: /nowhere", "edged.yaml:6: messages.channels.one.ca_file: /nowhere cannot be read"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_line(lines, fault):
    with pytest.raises(ConfigError) as caught:
        channels_of(f"{HEAD}{lines}\n")
    assert str(caught.value).startswith(fault)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("messages: {default: a, channels: {}}", "default: 'a' is not one of the channels: none"),
        ("messages: {channels: {a: {}, b: {}}}", "channels: there are several: write default: one of a, b"),
        ("messages: {channels: {A: {}}}", "channels.A: a name has a-z"),
        ("messages: {chanels: {}}", "chanels: unknown key; did you mean 'channels'?"),
        ("messages: {give_up: 0s}", "give_up: must be from 1s to 30d"),
        ("messages: {count: 0}", "count: "),
    ],
)  # fmt: skip
def test_the_section_itself_is_checked(text, fault):
    with pytest.raises(ConfigError) as caught:
        settings.parse(text, "edged.yaml")
    assert f"messages.{fault}" in str(caught.value)


def test_no_fault_tells_a_secret(tmp_path):
    """`!secret` never shows, nor does what was typed in its place."""
    (tmp_path / "secrets.yaml").write_text("bot: 'not-a-token-at-all'\n")
    (tmp_path / "secrets.yaml").chmod(0o600)
    text = f"{HEAD}      kind: telegram\n      token: !secret bot\n"
    loaded = settings.parse(text, str(tmp_path / "edged.yaml"))
    with pytest.raises(ConfigError) as caught:
        list(configured(loaded.section(Messages).channels))
    assert "not-a-token" not in str(caught.value)
