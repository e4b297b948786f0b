"""`edged call`: one call, its text on standard output, its files saved."""

from __future__ import annotations

import binascii
import os
import sys
from typing import Any

import msgspec

from edged import wording
from edged.cli import FAILED, UsageError, complain, show
from edged.cli.faults import cannot, unwritable
from edged.cli.parser import Parser, add_connection, connect, positive
from edged.cli.save import Saver
from edged.cli.tools import lacking
from edged.client import Client
from edged.errors import EdgedError, UnknownToolError
from edged.results import Audio, Block, Image, ResourceLink, Result, Text, joined

EXAMPLE = "edged call hello name=Ada\nedged call my_tool --args '{\"count\": 3}' --stream"

_AT = "name a text file after the @"

FAILURE_MAX = 256 << 10
"""Bytes of a failure that are printed whole; of a longer one the cut, and where all of it is."""


def options(parser: Parser) -> None:
    """Add the verb's options."""
    parser.add_argument("name", metavar="TOOL", help="a tool")
    parser.add_argument(
        "pairs",
        metavar="key=value",
        nargs="*",
        # Else argparse counts them among the required ones.
        default=[],
        help="inputs; key=@file reads a file, key=@@daily is the text @daily",
    )
    parser.add_argument(
        "--args", metavar="JSON", help="all inputs as one object; - or @file reads"
    )
    parser.add_argument("--stream", action="store_true", help="show updates while it runs")
    parser.add_argument("--timeout", metavar="S", type=positive, help="seconds it may take")
    parser.add_argument("--output", metavar="DIR", help="where to save images and long outputs")
    parser.add_argument("--json", action="store_true", help="print the whole result as JSON")
    add_connection(parser)


def run(args: Any) -> int:
    """Run the verb; returns the exit code."""
    if args.args is not None and args.pairs:
        raise UsageError(f"{args.pairs[0]!r}: --args gives the inputs already: use one of the two")
    given = _object(args.args) if args.args is not None else None
    pairs = _pairs(args.pairs)
    wrong = unwritable(args.output) if args.output is not None else 0
    if wrong:
        # Before the call: its result would be lost.
        raise UsageError(cannot("write", args.output, wrong, "name another directory as --output"))
    client = connect(args)
    updates = _Updates() if args.stream else None
    try:
        result = client.call(
            args.name,
            given if given is not None else _typed(client, args.name, pairs),
            on_update=updates.show if updates else None,
            timeout_s=args.timeout,
        )
    except UnknownToolError as error:
        why = lacking(client, args.name)
        return complain(f"{error}: {why}" if why else error, FAILED)
    if updates:
        updates.end()
    saver = Saver(client, args.name, args.output)
    if args.json:
        show.json(result)
        if args.output is not None:
            for block in result.content:
                _shown(saver, block)
            _save_rest(saver, result)
    else:
        _print(saver, result, to_directory=args.output is not None)
    for fault in saver.faults:
        sys.stderr.write(f"edged: {fault}\n")
    whole = not saver.faults
    return FAILED if result.is_error or not whole else 0


def _pairs(words: list[str]) -> dict[str, Any]:
    pairs: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if word.lstrip().startswith("{"):
            raise UsageError("inputs as a JSON object go with --args: --args '{…}'")
        if not key or not equals:
            raise UsageError(f"{word!r} is no input: write key=value")
        if key in pairs:
            raise UsageError(f"{key} is given twice: an input has one value")
        pairs[key] = _told(key, value[1:]) if value.startswith("@") else value
    return pairs


def _told(key: str, path: str) -> str:
    """The text of a file; where its name begins with `@` and no such file is, that name."""
    if path.startswith("@") and not os.path.lexists(path):
        return path
    text = show.cut(path, 40)
    return _file(key, path, f"{_AT}, or write @@{text} for the text @{text}")


def _file(key: str, path: str, remedy: str = _AT) -> str:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except OSError as error:
        raise UsageError(f"{key}: {cannot('read', path, error, remedy)}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{key}: {path} is not UTF-8 text: {remedy}") from None


def _object(text: str) -> Any:
    where = "--args"
    if text == "-":
        where = "--args -: standard input"
        try:
            text = sys.stdin.buffer.read().decode()
        except UnicodeDecodeError:
            raise UsageError("--args -: standard input is not UTF-8 text") from None
    elif text.startswith("@"):
        where = f"--args {text}"
        text = _file("--args", text[1:])
    if not text.strip():
        raise UsageError(f"{where} is empty: give an object, {{}} where there is nothing to say")
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise UsageError(f"{where}: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError(f"{where}: must be an object of names and values")
    # As it was written: numbers beyond 64 bits and their spelling are the tool's to judge.
    return msgspec.Raw(text.strip().encode())


def _typed(client: Client, name: str, pairs: dict[str, str]) -> dict[str, Any]:
    """The pairs as the declared types need them.

    The daemon reads numbers and booleans out of text itself; lists and objects it does not.
    """
    if not any(value.lstrip()[:1] in ("[", "{") for value in pairs.values()):
        return pairs
    try:
        properties = client.request("edged/describe", {"name": name})["schema"]["properties"]
    except (EdgedError, KeyError):
        # The call itself says what is wrong.
        return pairs
    return {key: _structured(key, properties.get(key, {}), one) for key, one in pairs.items()}


def _structured(key: str, schema: dict[str, Any], value: str) -> Any:
    """A list or an object where the input may be one and the value begins like one.

    Raises:
        UsageError: it begins so and is none. As text a chip might be sent the brackets.
    """
    kinds = {one.get("type") for one in (schema, *schema.get("anyOf", ()))}
    if value.lstrip()[:1] not in ("[", "{") or not kinds & {"array", "object"}:
        return value
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError as error:
        text = "; text that begins so goes with --args" if "string" in kinds else ""
        raise UsageError(f"{key}: begins like JSON and is none: {error}{text}") from None


class _Updates:
    """Updates on standard error; on a terminal each in place of the one before."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._shown = False

    def show(self, content: list[Block]) -> None:
        text = wording.one_line(joined(content))
        if self._terminal:
            sys.stderr.write(f"\r\033[K{show.cut(text, show.width() - 1)}")
            self._shown = True
        else:
            sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def end(self) -> None:
        if self._shown:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()


def _print(saver: Saver, result: Result, *, to_directory: bool) -> None:
    """Print a result, and save what is no text of it."""
    stream = sys.stderr if result.is_error else sys.stdout
    whole = "" if to_directory or stream.isatty() else _whole(saver, result)
    for block in result.content:
        # All text of a cut result is one block.
        text = whole if whole and isinstance(block, Text) else _shown(saver, block)
        if stream.isatty():
            text = wording.safe(text)
            if result.is_error:
                # What a tool puts out is its own affair; what went wrong is to be read.
                text = show.folded(text, show.width())
        stream.write(text if text.endswith("\n") else f"{text}\n")
    stream.flush()
    if result.sandbox == "none":
        sys.stderr.write("edged: this tool ran without a sandbox (sandbox: none)\n")
    _save_rest(saver, result)


def _save_rest(saver: Saver, result: Result) -> None:
    """Save the whole of what is cut in the result, and say where it is."""
    for uri in saver.unsaved(result.media):
        path = saver.medium(uri)
        if path:
            sys.stderr.write(f"edged: whole output: {path}\n")


def _whole(saver: Saver, result: Result) -> str:
    """The text that was cut for the model, for who reads a file or a pipe; or nothing."""
    cut = result.truncated
    if cut is None or not cut.media or (result.is_error and cut.bytes > FAILURE_MAX):
        return ""
    try:
        return saver.text(cut.media)
    except EdgedError as error:
        sys.stderr.write(f"edged: the whole output is not to be had: {error}\n")
        return ""


def _shown(saver: Saver, block: Block) -> str:
    if isinstance(block, Text):
        return block.text
    if isinstance(block, ResourceLink) and block.uri.startswith("media://"):
        return saver.medium(block.uri) or joined([block])
    if isinstance(block, Image | Audio):
        try:
            data = binascii.a2b_base64(block.data, strict_mode=True)
            return saver.file(data, block.mime_type, "") or joined([block])
        except binascii.Error:
            pass
    return joined([block])
