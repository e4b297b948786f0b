"""`edged completion`: what a shell offers after a tab, made from the table of verbs."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from edged.cli import VERBS, load, show
from edged.cli.parser import Parser

EXAMPLE = (
    "edged completion bash > ~/.local/share/bash-completion/completions/edged\n"
    "edged completion zsh > ~/.zfunc/_edged\n"
    "edged completion fish > ~/.config/fish/completions/edged.fish"
)

Kind = Literal["flag", "choices", "tool", "file", "dir", "text"]
_KINDS: dict[str, Kind] = {"TOOL": "tool", "FILE": "file", "PATH": "file", "DIR": "dir"}

TOOL_NAMES = """edged tools --json 2>/dev/null | sed -n 's/^    "name": "\\(.*\\)",$/\\1/p'"""
"""Shell text that prints the names of tools; silent where no daemon answers."""


class Word(NamedTuple):
    """An option, or a positional argument (without names)."""

    names: tuple[str, ...]
    about: str
    kind: Kind
    choices: tuple[str, ...] = ()


def options(parser: Parser) -> None:
    """Add the verb's options."""
    parser.add_argument(
        "shell",
        choices=("bash", "zsh", "fish"),
        help="your shell (make the directory that you write to first)",
    )


def run(args: Any) -> int:
    """Run the verb; returns the exit code."""
    words = {verb: list(words_of(verb)) for verb in VERBS}
    script = {"bash": bash, "zsh": zsh, "fish": fish}[args.shell]
    show.out(script(words))
    return 0


def words_of(verb: str) -> Iterator[Word]:
    """The arguments of a verb, as its parser knows them."""
    module = load(verb)
    parser = Parser(verb, VERBS[verb], module.EXAMPLE)
    module.options(parser)
    for action in parser.arguments():
        yield Word(tuple(action.option_strings), action.help or "", *_kind(action))


def _kind(action: argparse.Action) -> tuple[Kind, tuple[str, ...]]:
    if action.choices:
        return "choices", tuple(map(str, action.choices))
    if action.nargs == 0:
        return "flag", ()
    return _KINDS.get(str(action.metavar), "text"), ()


def bash(words: dict[str, list[Word]]) -> str:
    """The script for bash."""
    cases = "\n".join(f"    {verb})\n{_bash_verb(some)}      ;;" for verb, some in words.items())
    return f"""\
# bash completion for edged
_edged() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD - 1]}}
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W "{" ".join(words)} --help --version" -- "$cur")
    return
  fi
  case ${{COMP_WORDS[1]}} in
{cases}
  esac
}}
complete -F _edged edged"""


def _bash_verb(words: list[Word]) -> str:
    lines = ["      case $prev in\n"]
    lines += [
        f"        {'|'.join(word.names)}) {_bash_offer(word)}; return ;;\n"
        for word in words
        if word.names and word.kind != "flag"
    ]
    lines.append("      esac\n")
    names = " ".join(name for word in words for name in word.names)
    places = [word for word in words if not word.names and word.kind != "text"]
    lines.append(f"      if [[ $cur == -* ]]; then {_bash_list(names)}; return; fi\n")
    for place, word in enumerate(places, start=2):
        last = place == len(places) + 1 and word.kind in ("file", "dir")
        test = f"COMP_CWORD {'>=' if last else '=='} {place}"
        lines.append(f"      if (({test})); then {_bash_offer(word)}; fi\n")
    return "".join(lines)


def _bash_offer(word: Word) -> str:
    if word.kind == "choices":
        return _bash_list(" ".join(word.choices))
    if word.kind == "tool":
        return _bash_list(f"$({TOOL_NAMES})")
    if word.kind in ("file", "dir"):
        return f'mapfile -t COMPREPLY < <(compgen -{word.kind[0]} -- "$cur")'
    return ":"


def _bash_list(words: str) -> str:
    return f'mapfile -t COMPREPLY < <(compgen -W "{words}" -- "$cur")'


def zsh(words: dict[str, list[Word]]) -> str:
    """The script for zsh."""
    verbs = "\n".join(f"    {_quoted(f'{verb}:{text}')}" for verb, text in VERBS.items())
    cases = "\n".join(
        f"    {verb})\n      _arguments {' '.join(_zsh_words(some))} ;;"
        for verb, some in words.items()
    )
    return f"""\
#compdef edged
_edged_tools() {{
  local -a names
  names=(${{(f)"$({TOOL_NAMES})"}})
  compadd -a names
}}
_edged() {{
  local -a verbs
  verbs=(
{verbs}
  )
  if ((CURRENT == 2)); then
    _describe verb verbs
    return
  fi
  local verb=$words[2]
  shift words
  ((CURRENT--))
  case $verb in
{cases}
  esac
}}
_edged "$@\""""


def _zsh_words(words: list[Word]) -> Iterator[str]:
    for word in words:
        about = word.about.replace("[", "(").replace("]", ")").replace(":", r"\:")
        offer = {
            "choices": f"({' '.join(word.choices)})",
            "tool": "_edged_tools",
            "file": "_files",
            "dir": "_files -/",
            "text": " ",
            "flag": "",
        }[word.kind]
        value = f":{word.kind}:{offer}" if offer else ""
        if not word.names:
            yield _quoted(f"*:{about}:{offer}" if word.kind == "dir" else f":{about}:{offer}")
        for name in word.names:
            yield _quoted(f"{name}[{about}]{value}")


def fish(words: dict[str, list[Word]]) -> str:
    """The script for fish."""
    lines = ["complete -c edged -f"]
    lines += [
        f"complete -c edged -n __fish_use_subcommand -a {verb} -d {_quoted(text)}"
        for verb, text in VERBS.items()
    ]
    for verb, some in words.items():
        within = f"complete -c edged -n '__fish_seen_subcommand_from {verb}'"
        lines += [f"{within} {_fish_word(word)}" for word in some if _fish_word(word)]
    return "\n".join(lines)


def _fish_word(word: Word) -> str:
    offer = {
        "choices": f"-a {_quoted(' '.join(word.choices))}",
        "tool": f"-a {_quoted(f'({TOOL_NAMES})')}",
        "file": "-F",
        "dir": "-a '(__fish_complete_directories)'",
        "text": "",
        "flag": "",
    }[word.kind]
    if not word.names:
        return offer
    names = " ".join(f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in word.names)
    needs = "" if word.kind == "flag" else f" -r {offer}".rstrip()
    return f"{names}{needs} -d {_quoted(word.about)}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", r"'\''") + "'"
