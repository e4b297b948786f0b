"""The official conformance suite, as the server of edged's MCP client."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.npm import NODE, modules

ROOT = Path(__file__).parents[2]
SUITE = "@modelcontextprotocol/conformance/dist/index.js"
BOUND_S = 60.0

SCENARIOS = [
    ("initialize", "2025-11-25"),
    ("tools_call", "2025-06-18"),
    ("tools_call", "2025-11-25"),
    ("tools_call", "2026-07-28"),
    ("sse-retry", "2025-11-25"),
    ("request-metadata", "2026-07-28"),
    ("http-standard-headers", "2026-07-28"),
    ("http-custom-headers", "2026-07-28"),
    ("http-invalid-tool-headers", "2026-07-28"),
    ("json-schema-ref-no-deref", "2026-07-28"),
    ("json-schema-2020-12-preservation", "2025-11-25"),
    ("json-schema-2020-12-preservation", "2026-07-28"),
    ("sep-2322-client-request-state", "2026-07-28"),
]


@pytest.mark.parametrize(("scenario", "revision"), SCENARIOS)
def test_a_client_scenario_passes(scenario, revision, tmp_path):
    """Npm @modelcontextprotocol/conformance; the requirement sets name the scenarios."""
    program = Path(__file__).with_name("conformance_client.py")
    command = shlex.join([sys.executable, str(program)])
    suite = [NODE, str(modules("mcp") / SUITE), "client", "--command", command]
    done = subprocess.run(
        [*suite, "--scenario", scenario, "--spec-version", revision, "-o", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=BOUND_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # A busy machine may be late by more than the suite likes: that is a warning.
    assert " 0 failed, " in done.stderr
