"""Completion scripts, made from the table of verbs."""

import subprocess

import pytest

from edged.cli import VERBS, completion


@pytest.fixture(scope="module")
def words():
    return {verb: list(completion.words_of(verb)) for verb in VERBS}


@pytest.fixture
def complete(words, tmp_path):
    """What bash offers for a command line that ends in a word to complete."""
    script = tmp_path / "edged.bash"
    script.write_text(completion.bash(words))
    (tmp_path / "edged").write_text(
        "#!/bin/sh\n"
        '[ "$*" = \'tools --json\' ] && printf \'[\\n  {\\n    "name": "hello",\\n'
        '    "description": "say \\\\"name\\\\": \\\\"no\\\\"",\\n    "label": "x"\\n  }\\n]\\n\'\n'
    )
    (tmp_path / "edged").chmod(0o755)
    (tmp_path / "a_file").touch()
    (tmp_path / "a_dir").mkdir()

    def offered(*line):
        quoted = " ".join(f"'{word}'" for word in line)
        program = (
            f"source {script}; COMP_WORDS=({quoted}); COMP_CWORD={len(line) - 1}; _edged;"
            ' printf "%s\\n" "${COMPREPLY[@]}"'
        )
        path = f"{tmp_path}:/usr/bin:/bin"
        done = subprocess.run(
            ["bash", "--norc", "-c", program],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={"PATH": path},
        )
        assert done.stderr == ""
        return set(done.stdout.split())

    return offered


def test_verbs_are_offered_first(complete):
    assert complete("edged", "to") == {"token", "tools"}
    assert set(VERBS) <= complete("edged", "")


def test_options_of_the_verb_are_offered(complete):
    assert complete("edged", "log", "--l") == {"--limit"}
    assert "--dry-run" in complete("edged", "sync", "-")


def test_choices_of_an_option_and_of_an_argument_are_offered(complete):
    assert complete("edged", "tools", "--format", "open") == {"openai", "openai-responses"}
    assert complete("edged", "token", "re") == {"revoke"}
    assert complete("edged", "completion", "") == {"bash", "zsh", "fish"}


def test_names_of_tools_come_from_the_daemon(complete):
    assert complete("edged", "call", "h") == {"hello"}
    assert complete("edged", "tools", "--enable", "") == {"hello"}
    assert complete("edged", "describe", "") == {"hello"}


def test_files_and_directories_are_offered_where_they_belong(complete):
    assert {"a_file", "a_dir"} <= complete("edged", "serve", "--config", "a_")
    assert complete("edged", "check-tool", "a_") == {"a_dir"}
    assert complete("edged", "check-tool", "x", "a_") == {"a_dir"}


def test_free_text_offers_nothing(complete):
    assert complete("edged", "log", "--limit", "") == set()
    assert complete("edged", "call", "hello", "na") == set()


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_know_every_verb_and_option(shell, words):
    text = getattr(completion, shell)(words)
    for verb, some in words.items():
        assert verb in text
        for word in some:
            for name in word.names:
                wanted = name if shell == "zsh" else f"-l {name[2:]}"
                assert wanted in text or not name.startswith("--")
