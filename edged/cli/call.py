"""`edged call`: one call, its text on standard output, its files saved."""

from __future__ import annotations

import binascii
import sys
from typing import Any

import msgspec

from edged.cli import FAILED, UsageError, show
from edged.cli.parser import Parser, add_connection, connect, positive
from edged.cli.save import Saver
from edged.client import Client
from edged.errors import EdgedError
from edged.results import Audio, Block, Image, ResourceLink, Result, Text, joined

EXAMPLE = "edged call hello name=Ada\nedged call my_tool --args '{\"count\": 3}' --stream"


def options(parser: Parser) -> None:
    """Add the verb's options."""
    parser.add_argument("name", metavar="TOOL", help="a tool")
    parser.add_argument(
        "pairs",
        metavar="key=value",
        nargs="*",
        # Else argparse counts them among the required ones.
        default=[],
        help="inputs; key=@file reads a file",
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
    given = _object(args.args) if args.args is not None else None
    pairs = _pairs(args.pairs)
    if pairs and given is not None:
        raise UsageError("key=value and --args: use one of them")
    client = connect(args)
    updates = _Updates() if args.stream else None
    result = client.call(
        args.name,
        given if given is not None else _typed(client, args.name, pairs),
        on_update=updates.show if updates else None,
        timeout_s=args.timeout,
    )
    if updates:
        updates.end()
    if args.json:
        show.json(result)
    else:
        _print(client, args.name, result, args.output)
    return FAILED if result.is_error else 0


def _pairs(words: list[str]) -> dict[str, Any]:
    pairs: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not key or not equals:
            raise UsageError(f"{word!r} is no input: write key=value")
        if key in pairs:
            raise UsageError(f"{key} is given twice: an input has one value")
        pairs[key] = _file(key, value[1:]) if value.startswith("@") else value
    return pairs


def _file(key: str, path: str) -> str:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not UTF-8 text"
        raise UsageError(
            f"{key}=@{path}: {reason}: name a text file, or give text that begins with @ in --args"
        ) from None


def _object(text: str) -> Any:
    if text == "-":
        try:
            text = sys.stdin.buffer.read().decode()
        except UnicodeDecodeError:
            raise UsageError("--args -: standard input is not UTF-8 text") from None
    elif text.startswith("@"):
        text = _file("--args", text[1:])
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise UsageError(f"--args: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError("--args: must be an object of names and values")
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
    return {key: _structured(properties.get(key, {}), value) for key, value in pairs.items()}


def _structured(schema: dict[str, Any], value: str) -> Any:
    kinds = {one.get("type") for one in (schema, *schema.get("anyOf", ()))}
    if "string" in kinds or not kinds & {"array", "object"}:
        return value
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        return value


class _Updates:
    """Updates on standard error; on a terminal each in place of the one before."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._shown = False

    def show(self, content: list[Block]) -> None:
        text = show.one_line(joined(content))
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


def _print(client: Client, name: str, result: Result, directory: str | None) -> None:
    saver = Saver(client, name, directory)
    stream = sys.stderr if result.is_error else sys.stdout
    whole = "" if directory or stream.isatty() else _whole(saver, result)
    for block in result.content:
        # All text of a cut result is one block.
        text = whole if whole and isinstance(block, Text) else _shown(saver, block)
        if stream.isatty():
            text = show.safe(text)
        stream.write(text if text.endswith("\n") else f"{text}\n")
    stream.flush()
    if result.sandbox == "none":
        sys.stderr.write("edged: this tool ran without a sandbox (sandbox: none)\n")
    for uri in saver.unsaved(result.media):
        # The whole of what was cut above.
        sys.stderr.write(f"edged: whole output: {saver.medium(uri)}\n")


def _whole(saver: Saver, result: Result) -> str:
    """The text that was cut for the model, for who reads a file or a pipe; or nothing."""
    if result.truncated is None or not result.truncated.media:
        return ""
    try:
        return saver.text(result.truncated.media)
    except EdgedError as error:
        sys.stderr.write(f"edged: the whole output is not to be had: {error}\n")
        return ""


def _shown(saver: Saver, block: Block) -> str:
    if isinstance(block, Text):
        return block.text
    if isinstance(block, ResourceLink) and block.uri.startswith("media://"):
        return saver.medium(block.uri)
    if isinstance(block, Image | Audio):
        try:
            return saver.file(
                binascii.a2b_base64(block.data, strict_mode=True), block.mime_type, ""
            )
        except binascii.Error:
            pass
    return joined([block])
