"""The conformance suite inside the emulated board, the same code as on the simulator."""

import pytest

pytestmark = pytest.mark.timeout(2700)  # the first run fetches the board's system

PYTEST = "python3 -m pytest -rA -p no:cacheprovider --durations=10 tests/conformance"
BOUND_S = 600


def test_the_conformance_suite(board):
    """Issue 3, part 9 (a): chips and drivers of the kernel that no one here wrote."""
    with board.hands():
        report = board.agent.run(
            f"cd /suite && EDGED_RIGS=hil.guest.rig {PYTEST} 2>&1; echo $? >/run/status",
            timeout=BOUND_S,
        )
    print(report)
    if board.agent.get("/run/status") != "0\n":
        pytest.fail(f"the suite on the board failed:\n{report}", pytrace=False)
