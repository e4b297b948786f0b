"""What `edged new-tool` writes: a small working tool in each language, with comments that teach.

`TOOL_NAME` and `TOOL_LABEL` stand for the tool's own. Texts in a module, so that they are
there on a tree of compiled files too.
"""

from __future__ import annotations

_TOOL_MD = """\
---
name: TOOL_NAME
label: TOOL_LABEL
# The agent chooses tools by this line: say what the tool does, and when to use it.
description: Repeats a text. Use this to see that a tool of your own works.
# Raise the version with every change.
version: 1
language: {language}
inputs:
  text:
    type: string
    description: What to repeat.
  times:
    type: number
    description: How often.
    # An input with a default may be left out; so may one with `optional: true`.
    default: 1
  style:
    type: enum
    values: plain, loud
    description: How to write it.
    default: plain
  # A password or token is `sensitive: true`: it is kept out of logs and events.
#
# A tool may use what it names here, and no more. Take the # off what you need:
# timeout: 60              # seconds of wall time, 1 to 3600
# memory: 256M             # for all its processes together
# network: true
# devices: [i2c-1]         # device nodes below /dev
# calls: [sensor]          # other tools that it calls
# env: [MY_VARIABLE]       # variables from the configuration, tools.TOOL_NAME.env
---

# TOOL_LABEL

Write here what the agent should know to use the tool well: what it gets back,
which errors there are and what to do about them.

## Examples

- text: hello, times: 2
"""

_PYTHON = '''\
"""The code of TOOL_NAME; TOOL.md beside it says what agents see.

It runs in a sandbox, in a process of its own for each call. /workspace is the
working directory and stays; /tmp is gone after the call. Standard library and the
packages of the system's python3 are there.
"""

LIMIT = 1000


def ok(text):
    return {"content": [{"type": "text", "text": text}]}


def err(text):
    # The agent reads this and acts on it: say what to do.
    return {"content": [{"type": "text", "text": text}], "isError": True}


def execute(tool_call_id, params, signal=None, on_update=None):
    """Called once. `async def` works too.

    params: the inputs by name, checked against TOOL.md, defaults filled in.
    signal: `signal.aborted` becomes true when the call is cancelled.
    on_update: shows a state of long work; each one replaces the one before.
    """
    times = params["times"]
    if times != int(times) or not 1 <= times <= LIMIT:
        return err(f"times must be a whole number from 1 to {LIMIT}")
    times = int(times)
    if on_update:
        on_update(ok(f"Repeating {times} times..."))
    text = params["text"]
    if params["style"] == "loud":
        text = text.upper()
    # What is printed goes to the log; what is returned goes to the agent.
    return ok("\\n".join([text] * times))
'''

_BASH = """\
# The code of TOOL_NAME; TOOL.md beside it says what agents see.
#
# It runs in a sandbox, in a process of its own for each call. /workspace is the
# working directory and stays; /tmp is gone after the call.
#
# Inputs: variables INPUT_<NAME>, checked against TOOL.md, defaults filled in; all of
# them as one JSON object on standard input.
# Result: what is written to standard output. Failure: an exit status that is not 0.
set -euo pipefail

limit=1000

fail() {
  # The agent reads this and acts on it: say what to do.
  echo "$1"
  exit 1
}

# Numbers come as JSON writes them; this takes whole ones only.
[[ $INPUT_TIMES =~ ^[0-9]+$ ]] || fail "times must be a whole number"
((INPUT_TIMES >= 1 && INPUT_TIMES <= limit)) || fail "times must be from 1 to $limit"

text=$INPUT_TEXT
[[ $INPUT_STYLE == loud ]] && text=${text^^}

# Shows a state of long work; each one replaces the one before.
edged-update "Repeating $INPUT_TIMES times..."

for ((i = 0; i < INPUT_TIMES; i++)); do
  printf '%s\\n' "$text"
done
"""

_TYPESCRIPT = """\
// The code of TOOL_NAME; TOOL.md beside it says what agents see.
//
// It runs in a sandbox, in a process of its own for each call. /workspace is the
// working directory and stays; /tmp is gone after the call. Node's own modules are
// there (`import { readFileSync } from 'node:fs'`). Types are stripped, not checked.

type ToolResult = {
  content: Array<{ type: string; text: string }>;
  isError?: boolean;
};

type Params = {
  text: string;
  times: number;
  style: string;
};

const LIMIT = 1000;

function ok(text: string): ToolResult {
  return { content: [{ type: 'text', text }] };
}

function err(text: string): ToolResult {
  // The agent reads this and acts on it: say what to do.
  return { content: [{ type: 'text', text }], isError: true };
}

// Called once. params: the inputs by name, checked against TOOL.md, defaults filled in.
// signal: aborted when the call is cancelled. onUpdate: shows a state of long work; each
// one replaces the one before.
export async function execute(
  _toolCallId: string,
  params: Params,
  _signal?: AbortSignal,
  onUpdate?: (partial: ToolResult) => void,
): Promise<ToolResult> {
  if (!Number.isInteger(params.times) || params.times < 1 || params.times > LIMIT) {
    return err(`times must be a whole number from 1 to ${LIMIT}`);
  }
  onUpdate?.(ok(`Repeating ${params.times} times...`));
  const text = params.style === 'loud' ? params.text.toUpperCase() : params.text;
  // What console.log prints goes to the log; what is returned goes to the agent.
  return ok(Array(params.times).fill(text).join('\\n'));
}
"""

TEMPLATES: dict[str, dict[str, str]] = {
    "python": {"TOOL.md": _TOOL_MD.format(language="python"), "index.py": _PYTHON},
    "bash": {"TOOL.md": _TOOL_MD.format(language="bash"), "index.sh": _BASH},
    "typescript": {"TOOL.md": _TOOL_MD.format(language="typescript"), "index.ts": _TYPESCRIPT},
}
"""By language: file name to text."""
