"""`edged new-tool`: what it writes works as it stands (README's first half hour)."""

import os
import resource
import signal

import pytest

from edged.cli import run
from edged.toolmd.check import check
from edged.toolmd.manifest import parse
from edged.toolmd.templates import TEMPLATES


@pytest.fixture(autouse=True)
def nobody(monkeypatch, tmp_path):
    monkeypatch.setenv("EDGED_SOCKET", str(tmp_path / "none.sock"))
    monkeypatch.setenv("DATA_PATH", "/a data")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("language", TEMPLATES)
def test_tool_passes_its_own_check(language, tmp_path):
    assert run(["new-tool", "my_tool", "--language", language]) == 0
    assert check(str(tmp_path / "my_tool")) == []
    found = parse((tmp_path / "my_tool" / "TOOL.md").read_bytes(), "TOOL.md")
    assert (found.name, found.label, found.language) == ("my_tool", "My tool", language)
    assert found.warnings == ()


@pytest.mark.parametrize("language", TEMPLATES)
def test_nothing_of_the_template_is_left(language, tmp_path):
    run(["new-tool", "my_tool", "--language", language])
    for file in (tmp_path / "my_tool").iterdir():
        assert "TOOL_" not in file.read_text()


def test_it_says_where_to_copy_it_and_how_to_call_it(capsys):
    assert run(["new-tool", "my_tool", "--directory", "work"]) == 0
    out = capsys.readouterr().out
    assert "wrote work/my_tool/ (TOOL.md, index.py)" in out
    assert "edged check-tool work/my_tool" in out
    # Who may not write there is told to use sudo.
    plain = out.replace("sudo ", "")
    assert "mkdir -p '/a data/local/tools' && cp -r work/my_tool '/a data/local/tools'/" in plain
    assert ("sudo " in out) == (os.geteuid() != 0)
    assert "edged call my_tool" in out


def test_name_of_a_tool_that_came_with_edged_is_told(capsys):
    """A user's own tool overrides a global one of the same name."""
    assert run(["new-tool", "hello"]) == 0
    assert "A tool hello came with edged: once copied, yours" in capsys.readouterr().out


def test_existing_directory_is_left_alone(capsys, tmp_path):
    (tmp_path / "my_tool").mkdir()
    assert run(["new-tool", "my_tool"]) == 1
    assert "my_tool: is there already: choose another name" in capsys.readouterr().err
    assert list((tmp_path / "my_tool").iterdir()) == []


@pytest.mark.parametrize("directory", ["file", "file/below"])
def test_place_that_cannot_be_written_is_told_with_its_reason(directory, capsys, tmp_path):
    (tmp_path / "file").touch()
    assert run(["new-tool", "my_tool", "--directory", directory]) == 1
    assert capsys.readouterr().err == (
        f"edged: cannot write {directory}/my_tool: Not a directory: "
        "choose another place with --directory\n"
    )


def test_half_a_tool_is_not_left_behind(tmp_path, capsys):
    """A full disk (here RLIMIT_FSIZE)."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limit[1]))
    try:
        assert run(["new-tool", "my_tool"]) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, before)
    assert "cannot write ./my_tool: File too large" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []


def test_python_template_refuses_what_it_cannot_do(tmp_path):
    run(["new-tool", "my_tool"])
    space = {}
    exec((tmp_path / "my_tool" / "index.py").read_text(), space)
    good = space["execute"]("id", {"text": "a", "times": 2, "style": "loud"})
    assert good == {"content": [{"type": "text", "text": "A\nA"}]}
    for times in (0, 1.5, 1001):
        assert space["execute"]("id", {"text": "a", "times": times, "style": "plain"})["isError"]
