"""A stdio MCP server that does what it is told, well or badly; the standard library alone.

Speaks the revisions with `initialize`. Run as `python3 scripted_server.py`.
"""

import json
import os
import sys
import time

INFO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {"listChanged": True}},
    "serverInfo": {"name": "scripted", "version": "1"},
}
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}
NUMBER = {"type": "object", "properties": {"number": {"type": "integer"}}}
NOTHING = {"type": "object", "properties": {}}
TOOLS = {
    "echo": TEXT,
    "arguments": {"properties": {"count": {"type": "integer"}, "text": {"type": "string"}}},
    "big": NUMBER,
    "image": NOTHING,
    "odd": NOTHING,
    "refuse": NOTHING,
    "environment": NOTHING,
    "look": TEXT,
    "steps": NUMBER,
    "wait": TEXT,
    "die": NUMBER,
    "hang": NOTHING,
    "flood": NOTHING,
    "more": TEXT,
    "wrong": {"type": "string"},
}
told = []


def say(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def text(value, **more):
    return {"content": [{"type": "text", "text": value}], **more}


def look(given, **_):
    try:
        return text(" ".join(sorted(os.listdir(given["text"]))))
    except OSError as error:
        return text(error.strerror, isError=True)


def steps(given, token, **_):
    for step in range(given["number"]):
        params = {"progressToken": token, "progress": step, "message": f"step {step}"}
        say({"method": "notifications/progress", "params": params})
        time.sleep(0.06)
    return text("done")


def wait(given, number, **_):
    """Never answered; what cancels it is written down."""
    told.append((number, given["text"]))


def die(given, **_):
    sys.stderr.write("the valve is stuck\n")
    sys.stderr.flush()
    os._exit(given["number"])


def flood(**_):
    while True:
        sys.stdout.write("not a message, not the last one\n" * 100)


def more(given, **_):
    TOOLS[given["text"]] = TEXT
    say({"method": "notifications/tools/list_changed"})
    return text("listed")


IMAGE = {"type": "image", "data": "QUJD" * 1000, "mimeType": "image/png"}
LINK = {"type": "resource_link", "uri": "x:1", "name": "n"}
ODD = {"content": [{"type": "hologram", "x": 1}, LINK], "structuredContent": {"a": 1}}
CALLS = {
    "arguments": lambda given, **_: text(json.dumps(given, sort_keys=True)),
    "big": lambda given, **_: text("line of text\n" * given["number"]),
    "image": lambda **_: {"content": [IMAGE]},
    "odd": lambda **_: ODD,
    "refuse": lambda **_: text("no key: set API_KEY", isError=True),
    "environment": lambda **_: text(json.dumps(dict(os.environ))),
    "look": look,
    "steps": steps,
    "wait": wait,
    "die": die,
    "hang": lambda **_: time.sleep(1_000),
    "flood": flood,
    "more": more,
}


def call(number, name, given, token):
    echo = lambda given, **_: text(given["text"])  # noqa: E731
    return CALLS.get(name, echo)(given=given, number=number, token=token)


def answer(message):
    number, method = message.get("id"), message.get("method")
    params = message.get("params", {})
    if method == "notifications/cancelled":
        for waiting, file in told:
            if waiting == params["requestId"]:
                with open(file, "w", encoding="utf-8") as marker:
                    marker.write("cancelled")
    elif method == "initialize":
        say({"id": number, "result": INFO})
    elif method == "tools/list":
        rows = [{"name": name, "inputSchema": schema} for name, schema in TOOLS.items()]
        say({"id": number, "result": {"tools": rows}})
    elif method == "tools/call":
        token = params.get("_meta", {}).get("progressToken")
        result = call(number, params["name"], params["arguments"], token)
        if result is not None:
            say({"id": number, "result": result})
    elif method == "ping":
        say({"id": number, "result": {}})
    elif number is not None:
        say({"id": number, "error": {"code": -32601, "message": "not known"}})


def main():
    # What real ones do: a banner on the wire, and much on standard error that nobody may read.
    sys.stdout.write("Scripted server running on stdio\n\n")
    sys.stderr.write("starting\n" * 20_000)
    sys.stderr.flush()
    for line in sys.stdin:
        answer(json.loads(line))


if __name__ == "__main__":
    main()
