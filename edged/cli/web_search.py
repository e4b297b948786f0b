"""`edged web-search`: who is asked for a web search, and what with. Keys are never shown."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from edged.cli import UsageError, show
from edged.cli.faults import cannot
from edged.cli.parser import Parser, add_connection, add_json, connect

EXAMPLE = (
    "edged web-search\n"
    "edged web-search brave --key-file brave.key --first\n"
    "edged web-search searxng --base-url http://127.0.0.1:8888"
)


RESULTS_MAX = 50


def options(parser: Parser) -> None:
    """Add the verb's options."""
    parser.add_argument("provider", metavar="PROVIDER", nargs="?", help="which to change")
    parser.add_argument("--first", action="store_true", help="ask it first (auto: what is ready)")
    switch = parser.add_mutually_exclusive_group()
    switch.add_argument("--enable", action="store_true", help="ask it")
    switch.add_argument("--disable", action="store_true", help="do not ask it")
    parser.add_argument("--key-file", metavar="FILE", help="its keys, one a line; -: from stdin")
    parser.add_argument("--max-results", metavar="N", type=_results, help="results of one search")
    parser.add_argument("--base-url", metavar="URL", help="its server; empty: the usual one")
    parser.add_argument("--proxy", metavar="URL", help="proxy of search and fetch; empty: none")
    add_json(parser)
    add_connection(parser)


def run(args: Any) -> int:
    """Run the verb; returns the exit code."""
    body = _body(args)
    found = connect(args).request("edged/web-search", body)
    if args.json:
        show.json(found)
        return 0
    rows = []
    for row in found["providers"]:
        one = found["settings"][row["id"]]
        key = "set" if one["api_key_set"] else "missing" if row["requires_auth"] else "none needed"
        state = "ready" if row["configured"] else "not ready" if one["enabled"] else "disabled"
        first = "first" if row["current"] else ""
        rows.append((row["id"], row["label"], state, key, str(one["max_results"]), first))
    show.table(("PROVIDER", "NAME", "STATE", "KEY", "RESULTS", "ASKED"), rows)
    if found["proxy"]:
        show.out(f"proxy: {found['proxy']}")
    return 0


def _results(text: str) -> int:
    """The type of the option."""
    if not (
        text.isascii() and text.isdigit() and len(text) < 20 and 1 <= int(text) <= RESULTS_MAX
    ):
        raise argparse.ArgumentTypeError(f"must be from 1 to {RESULTS_MAX}, not {text}")
    return int(text)


def _body(args: Any) -> dict[str, Any]:
    """What is to change."""
    one: dict[str, Any] = {}
    if args.enable or args.disable:
        one["enabled"] = bool(args.enable)
    if args.max_results is not None:
        one["max_results"] = args.max_results
    if args.base_url is not None:
        one["base_url"] = args.base_url
    if args.key_file is not None:
        one["api_keys"] = _keys(args.key_file)
    if (one or args.first) and not args.provider:
        raise UsageError("which provider? edged web-search lists them")
    if args.provider and not (one or args.first):
        raise UsageError(f"what of {args.provider} is to change? see edged web-search --help")
    body: dict[str, Any] = {"settings": {args.provider: one}} if one else {}
    if args.first:
        body["provider"] = args.provider
    if args.proxy is not None:
        body["proxy"] = args.proxy
    return body


def _keys(file: str) -> list[str]:
    """The lines of a file; a command line would show them to everyone (ps)."""
    try:
        if file == "-":
            text = sys.stdin.read()
        else:
            with open(file, encoding="utf-8") as opened:
                text = opened.read()
    except OSError as error:
        raise UsageError(f"--key-file: {cannot('read', file, error)}") from None
    except UnicodeDecodeError:
        raise UsageError(f"--key-file {file} is not UTF-8 text") from None
    found = [line.strip() for line in text.splitlines() if line.strip()]
    if not found:
        # An empty list would delete the keys that are set.
        raise UsageError(f"--key-file {file} has no key in it")
    return found
