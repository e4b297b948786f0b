"""The host of TypeScript and JavaScript tools, in real sandboxes."""

from __future__ import annotations

import asyncio
import os

import pytest

HELLO = """
type ToolResult = { content: Array<{ type: string; text: string }>; isError?: boolean };
type Params = { name: string };
export async function execute(_toolCallId: string, params: Params): Promise<ToolResult> {
  return { content: [{ type: 'text', text: `Hello, ${params.name}!` }] };
}
"""


def text(outcome) -> str:
    return "\n".join(block.get("text", "") for block in outcome.result["content"])


def body(code: str, head: str = "") -> str:
    return f"{head}\nexport async function execute(id: string, params: any, signal?: AbortSignal, onUpdate?: any) {{ {code} }}\nconst ok = (text: string) => ({{ content: [{{ type: 'text', text }}] }});\n"


async def test_the_specifications_hello_works(workshop) -> None:
    outcome = await workshop.call("typescript", HELLO, {"name": "Ada"})
    assert outcome.reason == "ok"
    assert outcome.result == {
        "content": [{"type": "text", "text": "Hello, Ada!"}],
        "isError": False,
    }
    assert outcome.stderr == ""


@pytest.mark.parametrize("entry", ["index.js", "index.mjs"])
async def test_javascript_entries_work(workshop, entry: str) -> None:
    source = "export const execute = (id, params) => 'Hi ' + params.name;"
    outcome = await workshop.call("typescript", source, {"name": "Ada"}, entry=entry)
    assert text(outcome) == "Hi Ada"


async def test_the_specifications_way_to_find_its_folder_works(workshop) -> None:
    """Referencing local files: ESM and CJS, `bin/` beside the entry."""
    head = """
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { execFileSync } from 'node:child_process';
const TOOL_DIR = typeof __dirname !== 'undefined' ? __dirname : dirname(fileURLToPath(import.meta.url));
"""
    code = "return ok(execFileSync('python3', [join(TOOL_DIR, 'bin', 'x.py')], { encoding: 'utf-8' }))"
    outcome = await workshop.call(
        "typescript", body(code, head), files={"bin/x.py": "print('from bin', end='')"}
    )
    assert text(outcome) == "from bin"


@pytest.mark.parametrize("specifier", ["./helper.ts", "./helper", "./helper.js"])
async def test_helper_modules_are_found_as_typescript_writes_them(
    workshop, specifier: str
) -> None:
    head = f"import {{ NAME }} from '{specifier}';"
    outcome = await workshop.call(
        "typescript",
        body("return ok(NAME)", head),
        files={"helper.ts": "export const NAME: string = 'helper';"},
    )
    assert text(outcome) == "helper"


async def test_a_thrown_error_is_a_failure_with_the_tools_own_lines(workshop) -> None:
    source = "function deep(): never {\n  throw new TypeError('bad value', { cause: new Error('root') });\n}\nexport async function execute() {\n  return deep();\n}\n"
    outcome = await workshop.call("typescript", source)
    assert outcome.reason == "failed"
    assert text(outcome).splitlines() == [
        "TypeError: bad value",
        "  at deep (/officer/tools/tool_1/index.ts:2:9)",
        "  at execute (/officer/tools/tool_1/index.ts:5:10)",
        "  caused by Error: root",
    ]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("export class MyTool { async run() {} }", "A class (`MyTool`) is not called"),
        (
            "console.log(process.argv);",
            "index.ts has no export `execute`: write `export async function execute(",
        ),
        ("module.exports = { execute: () => 'x' };", "`module.exports` is not read: use `export`"),
        ("if (require.main === module) { main(); }", "index.ts has no export `execute`"),
        (
            "export default async function execute() { return 'x'; }",
            "A default export is not read",
        ),
        (body("console.log('result');"), "`execute` returned nothing: return text or { content:"),
        (body("return 3"), "`execute` returned a number"),
        (
            body("return { content: [], n: 3n }"),
            "the result cannot be sent as JSON: Do not know how to serialize a BigInt",
        ),
        (
            body("const a: any = { content: [] }; a.a = a; return a"),
            "the result cannot be sent as JSON: Converting circular",
        ),
        (
            body("return Bun.file('x')"),
            "use node:fs, setTimeout and node:child_process in place of Bun",
        ),
        (body("require('fs')"), "use import in place of require"),
        (body("process.exit(3)"), "the tool ended without a result (exit status 3)"),
        (body("await new Promise(() => {})"), "execute awaits what never happens"),
        (
            body(
                "setTimeout(() => { throw new Error('late') }); await new Promise(r => setTimeout(r, 9000))"
            ),
            "Error: late",
        ),
        (
            body(
                "Promise.reject(new Error('nobody waits')); await new Promise(r => setTimeout(r, 9000))"
            ),
            "Error: nobody waits",
        ),
        (body("return 'x'.repeat(17 << 20)"), "more than the limit of 16 MiB: save it to a file"),
        (body("throw 'a string'"), "the tool threw string a string"),
        ("import { gone } from './missing.ts';\n" + body(""), "Cannot find module"),
    ],
)
async def test_every_common_mistake_says_what_to_write(workshop, source: str, said: str) -> None:
    """The specification's common mistakes."""
    outcome = await workshop.call("typescript", source)
    assert outcome.result["isError"]
    assert said in text(outcome)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("const a = 1;\nenum Mode { A, B }\n" + HELLO, "write enums as const objects"),
        ("const a = 1;\nconst b: = 2;\n", "/officer/tools/tool_1/index.ts:2"),
        ("class A { constructor(private x: number) {} }\n" + HELLO, "declare class fields"),
    ],
)
async def test_typescript_that_cannot_be_stripped_says_where_and_what(
    workshop, source: str, said: str
) -> None:
    """Node removes types only (nodejs.org, TypeScript)."""
    outcome = await workshop.call("typescript", source)
    assert said in text(outcome)
    assert "/officer/tools/tool_1/index.ts:" in text(outcome)


async def test_what_was_printed_is_shown_only_with_a_failure(workshop) -> None:
    good = await workshop.call(
        "typescript", body("console.log('state'); process.stdout.write('x'); return ok('fine')")
    )
    assert text(good) == "fine"
    assert good.stderr == "state\nx"
    bad = await workshop.call("typescript", body("console.log('result: 42')"))
    assert text(bad).endswith("It wrote:\nresult: 42")


async def test_updates_come_in_order_before_the_result(workshop) -> None:
    seen: list = []
    job = workshop.job(
        "typescript", body("onUpdate?.(ok('one')); onUpdate('two'); return ok('three')")
    )
    outcome = await workshop.pool.call(job, "1", {}, seen.append)
    assert [content[0]["text"] for content in seen] == ["one", "two"]
    assert text(outcome) == "three"


async def test_output_of_child_processes_never_breaks_the_messages(workshop) -> None:
    head = "import { spawn } from 'node:child_process';"
    code = "const c = spawn('sh', ['-c', 'while :; do echo noise-noise; done'], { stdio: 'inherit' }); for (let n = 0; n < 50; n++) { onUpdate('u'.repeat(9000)); await new Promise(setImmediate); } c.kill(); return ok('y'.repeat(1000000))"
    seen: list = []
    outcome = await workshop.pool.call(
        workshop.job("typescript", body(code, head)), "1", {}, seen.append
    )
    assert text(outcome) == "y" * 1_000_000
    assert [content[0]["text"] for content in seen] == ["u" * 9000] * 50


async def test_the_signal_is_aborted_on_cancel(workshop) -> None:
    head = "import { writeFileSync } from 'node:fs';"
    code = "onUpdate('waiting'); await new Promise<void>((done) => signal!.addEventListener('abort', () => { writeFileSync('/officer/data/aborted', String(signal!.aborted)); done(); })); await new Promise(r => setTimeout(r, 60000))"
    waiting = asyncio.Event()
    task = asyncio.create_task(
        workshop.pool.call(
            workshop.job("typescript", body(code, head)), "1", {}, lambda _: waiting.set()
        )
    )
    async with asyncio.timeout(20):
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert os.listdir(workshop.data) == ["aborted"]


async def test_file_writes_that_were_not_awaited_are_finished(workshop) -> None:
    """On the specification's platform the process lives on after a call."""
    head = "import { promises } from 'node:fs';"
    await workshop.call(
        "typescript",
        body(
            "promises.writeFile('/officer/data/log', 'kept'.repeat(100000)); return ok('x')", head
        ),
    )
    assert os.path.getsize(os.path.join(workshop.data, "log")) == 400_000


async def test_standard_input_is_empty(workshop) -> None:
    head = "import { readFileSync } from 'node:fs'; import { execSync } from 'node:child_process';"
    code = "return ok(JSON.stringify([readFileSync(0, 'utf8'), execSync('cat', { stdio: ['inherit', 'pipe', 'inherit'] }).toString()]))"
    assert text(await workshop.call("typescript", body(code, head))) == '["",""]'


async def test_big_parameters_arrive(workshop) -> None:
    outcome = await workshop.call(
        "typescript", body("return ok(String(params.v.length))"), {"v": "é\0" * 1_000_000}
    )
    assert text(outcome) == "2000000"


async def test_a_failed_fetch_names_its_cause_and_the_line_to_add(workshop) -> None:
    outcome = await workshop.call("typescript", body("await fetch('https://api.example.com')"))
    assert "TypeError: fetch failed" in text(outcome)
    assert "EAI_AGAIN" in text(outcome)
    assert "`network: true` in TOOL.md" in text(outcome)


async def test_standard_library_of_node_works(workshop) -> None:
    head = "import { DatabaseSync } from 'node:sqlite'; import crypto from 'node:crypto'; import { Worker } from 'node:worker_threads';"
    code = "const w = new Worker('require(\"worker_threads\").parentPort.postMessage(1)', { eval: true }); await new Promise(r => w.on('message', r)); const db = new DatabaseSync('/officer/data/x.db'); db.exec('create table t(a)'); return ok(crypto.randomUUID().length + '')"
    assert text(await workshop.call("typescript", body(code, head))) == "36"
