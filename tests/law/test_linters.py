"""The checks that a reader relies on: format, lint, types, layers, shell scripts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


@pytest.mark.parametrize(
    "command",
    [
        ["ruff", "format", "--check", "--quiet", "."],
        ["ruff", "check", "--quiet", "."],
        ["mypy", "--no-error-summary"],
        ["lint-imports", "--no-cache"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
@pytest.mark.timeout(600)
def test_check_has_no_finding(command):
    """pyproject.toml holds the rules of each tool."""
    done = subprocess.run(
        [str(BIN / command[0]), *command[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_shell_scripts_parse():
    """The shells that run them say so."""
    scripts = [
        ".ci/run",
        ".ci/setup",
        "edged/toolmd/hosts/host.sh",
        "edged/toolmd/hosts/shell.sh",
        "edged/toolmd/hosts/bin/edged-call",
        "tests/system/guest/usr/local/sbin/plug-relays",
        *(
            str(path.relative_to(ROOT))
            for folder in ("hil", "tests")
            for path in sorted((ROOT / folder).rglob("*.sh"))
        ),
    ]
    for script in scripts:
        first = (ROOT / script).read_text().split("\n", 1)[0]
        shell = "bash" if "bash" in first or "hosts" in script else "sh"
        done = subprocess.run([shell, "-n", script], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_every_seed_tool_passes_its_own_check():
    """What ships must be what `edged check-tool` praises."""
    from edged.toolmd.check import check

    for directory in sorted((ROOT / "seed" / "tools").iterdir()):
        assert [f for f in check(str(directory)) if f.severity == "error"] == []


def test_package_carries_the_seed_tools():
    """A wheel is all that a board installs (appliance packaging)."""
    text = (ROOT / "pyproject.toml").read_text()
    assert '"seed" = "edged/seed"' in text
