"""Tools that clients of MCP find: they answer, fail, take their time, never end."""

MANIFEST = """---
name: {name}
label: The {name} tool
description: A tool.
version: 1
language: python
warm: false
inputs:
  text:
    type: string
    description: Any text.
    optional: true
---

# It

What it is about.
"""

SOURCES = {
    "says": "def execute(tool_call_id, params):\n    return f'it says {params[\"text\"]}'\n",
    "fails": "def execute(tool_call_id, params):\n"
    "    return {'content': [{'type': 'text', 'text': 'no key: set API_KEY'}], 'isError': True}\n",
    "raises": "def execute(tool_call_id, params):\n    raise ValueError('the valve is stuck')\n",
    # Ends only when whoever saw its update says so.
    "steps": """import os, time

def execute(tool_call_id, params, signal, on_update):
    on_update('phase 1: downloading')
    while not os.path.exists(f"/officer/data/{params['text']}"):
        time.sleep(0.01)
    on_update('phase 2: processing')
    return 'done'
""",
    # Goes on for ever, with a grandchild that hears no signal.
    "hangs": """import subprocess, time

def execute(tool_call_id, params, signal, on_update):
    subprocess.Popen(['setsid', 'sh', '-c', 'trap "" TERM; sleep 1000 & wait'])
    on_update('it hangs')
    while True:
        time.sleep(1)
""",
}


def files(name, source):
    return {"TOOL.md": MANIFEST.format(name=name), "index.py": source}


def lay(daemon):
    for name, source in SOURCES.items():
        daemon.lay(name, files(name, source))
