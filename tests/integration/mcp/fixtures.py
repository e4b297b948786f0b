"""What the official conformance suite calls: tools, resources and prompts of its names.

The suite documents each fixture in its scenario's description
(`@modelcontextprotocol/conformance`, `list --server`).
"""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from edged import results
from edged.mcp.types import MissingCapabilityError
from edged.results import Audio, Image, Resource, Result, Text
from edged.tool import Ask, Context, Tool, tool

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJg"
    "gg=="
)
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="

ELICIT, SAMPLE, ROOTS = "elicitation/create", "sampling/createMessage", "roots/list"


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No inputs."""


class Prompt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    prompt: str


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    message: str


class Name(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    filename: str


class Compute(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    seconds: float = 0
    label: str = ""


class Region(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    region: Annotated[str, Meta(extra_json_schema={"x-mcp-header": "Region"})]
    count: Annotated[int, Meta(extra_json_schema={"x-mcp-header": "Count"})] = 0
    query: str = ""


def form(message: str, **properties: Any) -> Ask:
    schema = {"type": "object", "properties": properties, "required": [*properties]}
    return Ask(ELICIT, {"message": message, "requestedSchema": schema})


def sample(text: str, max_tokens: int = 100) -> Ask:
    content = {"type": "text", "text": text}
    return Ask(
        SAMPLE, {"messages": [{"role": "user", "content": content}], "maxTokens": max_tokens}
    )


TEXT = {"type": "string"}
OK = {"type": "boolean"}


@tool("test_simple_text")
def simple_text(params: Nothing, ctx: Context) -> Result:
    """Text."""
    return results.text("This is a simple text response for testing.")


@tool("test_image_content")
def image_content(params: Nothing, ctx: Context) -> Result:
    """An image."""
    return Result([Image(PNG, "image/png")])


@tool("test_audio_content")
def audio_content(params: Nothing, ctx: Context) -> Result:
    """A sound."""
    return Result([Audio(WAV, "audio/wav")])


@tool("test_embedded_resource")
def embedded_resource(params: Nothing, ctx: Context) -> Result:
    """A resource in the result."""
    resource = {
        "uri": "test://embedded-resource",
        "mimeType": "text/plain",
        "text": "This is an embedded resource content.",
    }
    return Result([Resource(resource)])


@tool("test_multiple_content_types")
def multiple_content_types(params: Nothing, ctx: Context) -> Result:
    """Text, image and resource."""
    resource = {
        "uri": "test://mixed-content-resource",
        "mimeType": "application/json",
        "text": '{"test":"data","value":123}',
    }
    return Result(
        [Text("Multiple content types test:"), Image(PNG, "image/png"), Resource(resource)]
    )


@tool("test_tool_with_logging")
async def tool_with_logging(params: Nothing, ctx: Context) -> Result:
    """Log messages."""
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        ctx.client.log("info", text)
        await asyncio.sleep(0.05)
    return results.text("Tool with logging executed successfully")


@tool("test_logging_tool")
async def logging_tool(params: Nothing, ctx: Context) -> Result:
    """One log message."""
    ctx.client.log("info", "a message")
    return results.text("logged")


@tool("test_tool_with_progress")
async def tool_with_progress(params: Nothing, ctx: Context) -> Result:
    """Progress."""
    for done in (0, 50, 100):
        ctx.client.progress(done, 100, f"Completed step {done} of 100")
        await asyncio.sleep(0.06)
    return results.text("progressed")


@tool("test_error_handling")
def error_handling(params: Nothing, ctx: Context) -> Result:
    """A failure."""
    return results.failure("This tool intentionally returns an error for testing")


@tool("test_sampling")
async def sampling(params: Prompt, ctx: Context) -> Result:
    """Ask the client's model."""
    found = await ctx.client.ask({"answer": sample(params.prompt)})
    return results.text(f"LLM response: {found['answer']['content'].get('text')}")


@tool("test_elicitation")
async def elicitation(params: Message, ctx: Context) -> Result:
    """Ask the person at the client."""
    found = await ctx.client.ask({"answer": form(params.message, response=TEXT)})
    answer = found["answer"]
    content = json.dumps(answer.get("content") or {})
    return results.text(f"User response: action={answer['action']}, content={content}")


def asking(name: str, properties: dict[str, Any]) -> Tool:
    async def ask(params: Nothing, ctx: Context) -> Result:
        schema = {"type": "object", "properties": properties, "required": []}
        question = Ask(ELICIT, {"message": "Please review the form", "requestedSchema": schema})
        answer = (await ctx.client.ask({"form": question}))["form"]
        content = json.dumps(answer.get("content") or {})
        return results.text(f"Elicitation completed: action={answer['action']}, content={content}")

    return tool(name, description="A form.")(ask)


def titled(*names: str) -> list[dict[str, str]]:
    return [{"const": name, "title": name.title()} for name in names]


THREE = ("option1", "option2", "option3")
VALUES = ("value1", "value2", "value3")

FORMS = (
    asking(
        "test_elicitation_sep1034_defaults",
        {
            "name": {"type": "string", "default": "John Doe"},
            "age": {"type": "integer", "default": 30},
            "score": {"type": "number", "default": 95.5},
            "status": {
                "type": "string",
                "enum": ["active", "inactive", "pending"],
                "default": "active",
            },
            "verified": {"type": "boolean", "default": True},
        },
    ),
    asking(
        "test_elicitation_sep1330_enums",
        {
            "untitledSingle": {"type": "string", "enum": [*THREE]},
            "titledSingle": {"type": "string", "oneOf": titled(*VALUES)},
            "legacyEnum": {
                "type": "string",
                "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"],
            },
            "untitledMulti": {"type": "array", "items": {"type": "string", "enum": [*THREE]}},
            "titledMulti": {"type": "array", "items": {"anyOf": titled(*VALUES)}},
        },
    ),
)


def rounds(name: str, *steps: dict[str, Ask]) -> Tool:
    """A tool that asks, one step after the other."""

    async def run(params: Nothing, ctx: Context) -> Result:
        said: dict[str, Any] = {}
        for step in steps:
            said |= await ctx.client.ask(step)
        return results.text(json.dumps(said))

    return tool(name, description="Asks before it answers.")(run)


ROUNDS = (
    rounds(
        "test_input_required_result_elicitation",
        {"user_name": form("What is your name?", name=TEXT)},
    ),
    rounds(
        "test_input_required_result_sampling",
        {"capital_question": sample("What is the capital of France?")},
    ),
    rounds("test_input_required_result_list_roots", {"client_roots": Ask(ROOTS, {})}),
    rounds("test_input_required_result_request_state", {"confirm": form("Please confirm", ok=OK)}),
    rounds(
        "test_input_required_result_tampered_state", {"confirm": form("Please confirm", ok=OK)}
    ),
    rounds(
        "test_input_required_result_multiple_inputs",
        {
            "user_name": form("What is your name?", name=TEXT),
            "greeting": sample("Generate a greeting", 50),
            "client_roots": Ask(ROOTS, {}),
        },
    ),
    rounds(
        "test_input_required_result_multi_round",
        {"step1": form("Step 1: What is your name?", name=TEXT)},
        {"step2": form("Step 2: What is your favorite color?", color=TEXT)},
    ),
    rounds("test_missing_capability", {"answer": sample("Hello")}),
    rounds("test_streaming_elicitation", {"user_name": form("What is your name?", name=TEXT)}),
)


@tool("test_input_required_result_capabilities")
async def capabilities(params: Nothing, ctx: Context) -> Result:
    """Ask for no more than the client can."""
    asks = {"name": form("What is your name?", name=TEXT), "greeting": sample("Greet")}
    wanted = {key: ask for key, ask in asks.items() if ctx.client.can(ask.method)}
    return results.text(json.dumps(await ctx.client.ask(wanted)))


@tool("test_header_mirror")
def header_mirror(params: Region, ctx: Context) -> Result:
    """Inputs that HTTP clients repeat in headers."""
    return results.text(params.region)


# The tasks extension ---------------------------------------------------------------------


@tool("greet")
def greet(params: Name, ctx: Context) -> Result:
    """Never a task."""
    return results.text(f"Hello, {params.name}!")


@tool("slow_compute", timeout_s=120)
async def slow_compute(params: Compute, ctx: Context) -> Result:
    """A task, where the client takes one."""
    if params.seconds:
        ctx.client.defer()
    await asyncio.sleep(params.seconds)
    return results.text(f"computed {params.label}")


@tool("failing_job")
async def failing_job(params: Nothing, ctx: Context) -> Result:
    """A task or nothing; the tool fails."""
    await asyncio.sleep(0)
    ctx.client.defer(required=True)
    await asyncio.sleep(0.1)
    return results.failure("the job failed")


@tool("protocol_error_job")
async def protocol_error_job(params: Nothing, ctx: Context) -> Result:
    """A task whose request fails."""
    await asyncio.sleep(0)
    ctx.client.defer()
    await asyncio.sleep(0.1)
    raise MissingCapabilityError({"sampling": {}})


@tool("confirm_delete")
async def confirm_delete(params: File, ctx: Context) -> Result:
    """A task that asks."""
    await asyncio.sleep(0)
    ctx.client.defer()
    said = await ctx.client.ask({"confirm": form(f"Delete {params.filename}?", confirm=OK)})
    return results.text(json.dumps(said))


@tool("multi_input")
async def multi_input(params: Nothing, ctx: Context) -> Result:
    """A task that asks twice at once."""
    await asyncio.sleep(0)
    ctx.client.defer()
    said = await ctx.client.ask({"one": form("One?", name=TEXT), "two": form("Two?", name=TEXT)})
    return results.text(json.dumps(said))


@tool("test_tool_with_task")
async def tool_with_task(params: Nothing, ctx: Context) -> Result:
    """Asks first, and is a task then."""
    said = await ctx.client.ask({"user_name": form("What is your name?", name=TEXT)})
    ctx.client.defer(required=True)
    await asyncio.sleep(0.1)
    return results.text(f"Hello, {said['user_name']['content']['name']}!")


SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": TEXT, "city": TEXT},
        }
    },
    "properties": {
        "name": TEXT,
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": TEXT,
        "email": TEXT,
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {
        "properties": {"contactMethod": {"const": "phone"}},
        "required": ["contactMethod"],
    },
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


class Anything(msgspec.Struct, frozen=True):
    """Whatever the schema takes."""


schema_2020_12 = Tool(
    "json_schema_2020_12_tool",
    lambda params, ctx: results.text("taken"),
    description="A schema that is to arrive as it is.",
    make_type=lambda: Anything,
    make_schema=lambda: SCHEMA,
)


class Changing:
    """Tools that change a list, when called."""

    def __init__(self) -> None:
        self.touch_tools: Any = None
        self.touch_prompts: Any = None

    def tools(self) -> tuple[Tool, ...]:
        def of_tools(params: Nothing, ctx: Context) -> Result:
            self.touch_tools()
            return results.text("changed")

        def of_prompts(params: Nothing, ctx: Context) -> Result:
            self.touch_prompts()
            return results.text("changed")

        return (
            tool("test_trigger_tool_change", description="Changes the tools.")(of_tools),
            tool("test_trigger_prompt_change", description="Changes the prompts.")(of_prompts),
        )


TOOLS = (
    simple_text,
    image_content,
    audio_content,
    embedded_resource,
    multiple_content_types,
    tool_with_logging,
    logging_tool,
    tool_with_progress,
    error_handling,
    sampling,
    elicitation,
    capabilities,
    header_mirror,
    schema_2020_12,
    greet,
    slow_compute,
    failing_job,
    protocol_error_job,
    confirm_delete,
    multi_input,
    tool_with_task,
    *FORMS,
    *ROUNDS,
)


class Resources:
    """An `edged.mcp.resources.Source`."""

    FIXED = {
        "test://static-text": {
            "mimeType": "text/plain",
            "text": "This is the content of the static text resource.",
        },
        "test://static-binary": {"mimeType": "image/png", "blob": PNG},
        "test://watched-resource": {"mimeType": "text/plain", "text": "Watched"},
    }

    def rows(self, caller):
        return [
            {"uri": uri, "name": uri[7:], "description": "For tests.", "mimeType": one["mimeType"]}
            for uri, one in self.FIXED.items()
        ]

    def templates(self):
        return [
            {
                "uriTemplate": "test://template/{id}/data",
                "name": "template",
                "description": "For tests.",
                "mimeType": "application/json",
            }
        ]

    async def read(self, caller, uri, client):
        if uri in self.FIXED:
            return [{"uri": uri, **self.FIXED[uri]}]
        if uri.startswith("test://template/"):
            number = uri.split("/")[3]
            text = json.dumps(
                {"id": number, "templateTest": True, "data": f"Data for ID: {number}"}
            )
            return [{"uri": uri, "mimeType": "application/json", "text": text}]
        return None

    def watch(self, uri, tell):
        return (lambda: None) if uri in self.FIXED else None


def said(*contents: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": one} for one in contents]}


class Prompts:
    """An `edged.mcp.prompts.Source`."""

    ROWS = {
        "test_simple_prompt": (),
        "test_prompt_with_arguments": ("arg1", "arg2"),
        "test_prompt_with_embedded_resource": ("resourceUri",),
        "test_prompt_with_image": (),
        "test_input_required_result_prompt": (),
    }

    def rows(self, caller):
        return [
            {
                "name": name,
                "description": "For tests.",
                "arguments": [
                    {"name": one, "description": "For tests.", "required": True}
                    for one in arguments
                ],
            }
            for name, arguments in self.ROWS.items()
        ]

    async def get(self, caller, name, arguments, client):
        match name:
            case "test_simple_prompt":
                text = "This is a simple prompt for testing."
                return said({"type": "text", "text": text})
            case "test_prompt_with_arguments":
                one, two = arguments.get("arg1"), arguments.get("arg2")
                text = f"Prompt with arguments: arg1='{one}', arg2='{two}'"
                return said({"type": "text", "text": text})
            case "test_prompt_with_embedded_resource":
                resource = {
                    "uri": arguments["resourceUri"],
                    "mimeType": "text/plain",
                    "text": "Embedded resource content for testing.",
                }
                return said(
                    {"type": "resource", "resource": resource},
                    {"type": "text", "text": "Please process the embedded resource above."},
                )
            case "test_prompt_with_image":
                return said(
                    {"type": "image", "data": PNG, "mimeType": "image/png"},
                    {"type": "text", "text": "Please analyze the image above."},
                )
            case "test_input_required_result_prompt":
                ask = form("What context should the prompt use?", context=TEXT)
                answer = (await client.ask({"user_context": ask}))["user_context"]
                return said({"type": "text", "text": json.dumps(answer)})
        return None
