"""The conformance suite on a real bench; collected only where one is named (hil/bench.py)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

BOUND_S = 1200

pytestmark = pytest.mark.timeout(BOUND_S + 60)


def test_the_conformance_suite():
    """Issue 3, part 9 (d)."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", "tests/conformance"],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "EDGED_RIGS": "hil.bench"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BOUND_S,
    )
    print(done.stdout)
    if done.returncode:
        pytest.fail(f"the suite on the bench failed:\n{done.stdout}", pytrace=False)
