"""`edged web-search`: what is wrong is told before anything changes."""

import io

import pytest

from edged.cli import run


@pytest.fixture(autouse=True)
def sent(monkeypatch):
    """What a daemon was asked; there is none."""
    asked = []
    monkeypatch.setattr("edged.cli.web_search.connect", asked.append)
    yield asked
    assert asked == []


@pytest.mark.parametrize("text", ["", "\n", " \r\n\t\n"])
def test_key_file_without_a_key_deletes_none(text, tmp_path, capsys, monkeypatch):
    file = tmp_path / "brave.key"
    file.write_text(text)
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    for name in (str(file), "-"):
        assert run(["web-search", "brave", "--key-file", name]) == 2
        assert f"--key-file {name} has no key in it" in capsys.readouterr().err


@pytest.mark.parametrize("count", ["0", "51", "x", "1.5"])
def test_results_of_one_search_are_from_1_to_50(count, capsys):
    assert run(["web-search", "brave", "--max-results", count]) == 2
    assert f"must be from 1 to 50, not {count}" in capsys.readouterr().err
