"""Plugin folders."""

import compileall
import os
import sys
import textwrap

import pytest

from edged import plugins
from edged.errors import ConfigError


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package `shelf` with two plugins, a part of its own and a broken one."""
    root = tmp_path / "shelf"
    root.mkdir()
    files = {
        "__init__": "",
        "zebra": "NAME = 'zebra'",
        "ant": "NAME = 'ant'",
        "_part": "raise RuntimeError('never imported')",
        "needy": "import a_library_that_is_not_there",
    }
    for name, body in files.items():
        (root / f"{name}.py").write_text(textwrap.dedent(body))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield root
    for name in [name for name in sys.modules if name.partition(".")[0] == "shelf"]:
        del sys.modules[name]


def test_names_are_the_file_names_sorted(package):
    """Architecture: a file is a plugin and its file name is its key."""
    assert plugins.names("shelf") == ["ant", "needy", "zebra"]


def test_only_what_is_asked_for_is_imported(package):
    assert plugins.load("shelf", "ant").NAME == "ant"
    assert "shelf.zebra" not in sys.modules


def test_a_tree_of_pyc_files_alone_works(package):
    """Architecture, plugin folders: boards may ship without sources."""
    compileall.compile_dir(str(package), legacy=True, quiet=1)
    for entry in os.listdir(package):
        if entry.endswith(".py"):
            (package / entry).unlink()
    assert plugins.names("shelf") == ["ant", "needy", "zebra"]
    assert plugins.load("shelf", "zebra").NAME == "zebra"


@pytest.mark.parametrize("name", ["bear", "_part", "", "../shelf/ant", "os"])
def test_an_unknown_name_is_refused_with_the_known_ones(package, name):
    with pytest.raises(ConfigError, match="not one of shelf: ant, needy, zebra"):
        plugins.load("shelf", name)


@pytest.mark.parametrize(("name", "guess"), [("zebar", "zebra"), ("Needy", "needy")])
def test_a_name_that_is_nearly_right_is_told_the_right_one(package, name, guess):
    with pytest.raises(ConfigError, match=f"is not one of shelf; did you mean '{guess}'"):
        plugins.load("shelf", name)


def test_many_names_are_counted_and_not_listed():
    with pytest.raises(ConfigError, match=r"'qqq' is not one of drivers: there are \d+$"):
        plugins.load("edged.drivers", "qqq")


def test_a_plugin_that_lacks_its_library_says_which(package):
    """The import error names the library and is not taken for an unknown plugin."""
    with pytest.raises(ModuleNotFoundError, match="a_library_that_is_not_there"):
        plugins.load("shelf", "needy")
