"""Directories full of small tools."""

from __future__ import annotations

import os


def many_tools(root: str, count: int) -> None:
    os.makedirs(root, exist_ok=True)
    for number in range(count):
        directory = os.path.join(root, f"tool_{number:05d}")
        os.makedirs(directory)
        with open(os.path.join(directory, "TOOL.md"), "w") as file:
            file.write(
                f"---\nname: tool_{number:05d}\ndescription: Tool number {number} of many.\n"
                "version: 1\nlanguage: python\ninputs:\n  text:\n    type: string\n"
                "    description: Some text.\n---\n\n# Tool\n\nReturns its text.\n"
            )
        with open(os.path.join(directory, "index.py"), "w") as file:
            file.write("def execute(call_id, params):\n    return params['text']\n")
