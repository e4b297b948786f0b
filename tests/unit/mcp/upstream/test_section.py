"""What the configuration of a server is refused for, with what to write."""

import msgspec
import pytest

from edged.sections import McpServer


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"command": "npx -y foo"}, "command: is 'npx' alone: write `args: [-y, foo]` beside it"),
        ({"command": "ftp://a.example/x"}, "command: is a URL: one of http:// or https://"),
        ({"command": "y", "headers": {"A": "b"}}, "headers: is of a server with a url"),
        ({"url": "https://a.example", "read": ["/srv"]}, "read: is of a server with a command"),
        ({"url": "https://a.example", "args": ["x"]}, "args: is of a server with a command"),
    ],
)
def test_what_says_nothing_of_such_a_server_is_refused(given, text):
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(given, McpServer)
    assert str(caught.value).startswith(text)


def test_what_other_clients_write_is_taken():
    """Empty parts, whole paths with spaces, nodes in folders of /dev."""
    msgspec.convert({"url": "https://a.example", "env": {}, "args": []}, McpServer)
    made = msgspec.convert(
        {"command": "/opt/My App/server", "devices": ["bus/usb/001/002", "ttyUSB0"]}, McpServer
    )
    assert made.argv == ("/opt/My App/server",)
