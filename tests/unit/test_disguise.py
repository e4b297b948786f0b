"""What looks like a secret is not shown."""

import pytest

from edged.disguise import MASK, url, words


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("npx -y x --api-key abc --port 80", f"npx -y x --api-key {MASK} --port 80"),
        ("x --token=abc -v", f"x --token={MASK} -v"),
        ("docker run -e GITHUB_TOKEN=abc image", f"docker run -e GITHUB_TOKEN={MASK} image"),
        ("x --client-secret abc", f"x --client-secret {MASK}"),
        ("x --password --verbose", "x --password --verbose"),
        ("x https://a/?q=1&apiKey=abc#f", f"x https://a/?q=1&apiKey={MASK}#f"),
        ("x postgres://ada:abc@host/db", f"x postgres://{MASK}@host/db"),
        ("x --keys-file /srv/keys", "x --keys-file /srv/keys"),
        ("python3 /srv/token.py --tokens-max 3", "python3 /srv/token.py --tokens-max 3"),
    ],
)
def test_a_command_line_is_shown_without_what_is_called_a_key(given, shown):
    assert " ".join(words(given.split())) == shown
    assert " ".join(words(shown.split())) == shown


def test_a_header_in_one_word_is_disguised():
    assert words(["-H", "Authorization: Bearer abc"]) == ["-H", f"Authorization: {MASK}"]


def test_a_url_is_shown_without_its_keys():
    assert url("https://a.example/mcp?profile=x&token=abc") == (
        f"https://a.example/mcp?profile=x&token={MASK}"
    )
