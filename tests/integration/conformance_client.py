"""edged's MCP client as a program for the official conformance suite: `… URL`.

The suite appends the address of its server, names the scenario in the environment, and
hands over what to call where a scenario says so. What it measures is the wire; a scenario
alone decides what is called.
"""

import asyncio
import json
import os
import sys

import msgspec

from edged.errors import EdgedError
from edged.mcp.client import Client, RemoteError
from edged.mcp.upstream.web import HttpLink

ECHO = "json_schema_echo"
BOUND_S = 20.0


async def respond(method, params):
    """Agree to whatever the server asks."""
    assert method == "elicitation/create", method
    asked = params.get("requestedSchema", {}).get("properties", {})
    answers = {"boolean": True, "string": "yes", "integer": 1, "number": 1}
    content = {name: one.get("default", answers[one["type"]]) for name, one in asked.items()}
    return {"action": "accept", "content": content}


def arguments(tool):
    """Something that fits every required input."""
    schema = tool.input_schema or {}
    values = {"string": "x", "integer": 1, "number": 1, "boolean": True, "object": {}, "array": []}
    properties = schema.get("properties", {})
    return {
        name: values.get(properties[name].get("type"), 1) for name in schema.get("required", ())
    }


async def main(url):
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    client = Client(respond=respond)
    link = client.link = HttpLink(url, {}, client)
    try:
        async with asyncio.timeout(BOUND_S):
            await client.open()
            if client.tells_of_changes:
                link.watch()
            tools = {tool.name: tool for tool in (await client.tools()).tools}
            calls = [(one["name"], one["arguments"]) for one in context.get("toolCalls", ())]
            if not calls:
                calls = [(tool.name, arguments(tool)) for tool in tools.values()]
            if "json_schema_2020_12_tool" in tools and ECHO in tools:
                calls = [(ECHO, {"schema": tools["json_schema_2020_12_tool"].input_schema})]
            for name, given in calls:
                try:
                    await client.call(name, msgspec.json.encode(given))
                except RemoteError as error:
                    # A server may list what it does not do.
                    print(f"{name}: {error}", file=sys.stderr)
            for method, field, name in (
                ("resources/list", "resources", "uri"),
                ("prompts/list", "prompts", "name"),
            ):
                if field in client.capabilities:
                    found = msgspec.json.decode(await client.request(method))
                    for one in found[field]:
                        act = "resources/read" if field == "resources" else "prompts/get"
                        await client.request(act, {name: one[name]}, name=one[name])
    except EdgedError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    finally:
        await link.close()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[-1])))
