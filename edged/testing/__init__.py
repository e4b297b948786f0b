"""For the tests of users, and our own: a clock to move, a daemon to call."""

from edged.testing.clock import FakeClock
from edged.testing.daemon import Running, running

__all__ = ["FakeClock", "Running", "running"]
