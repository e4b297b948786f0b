"""Bubblewrap's words become what a person must do.

The messages are bubblewrap's own, seen on Debian 12 and 13 under the named unit
options and kernel switches, and in bubblewrap issues 632 and 774.
"""

import pytest

from edged.sandbox.probe import parse_version, remedy


@pytest.mark.parametrize(
    ("message", "part"),
    [
        ("bwrap: setting up uid map: Permission denied", "AppArmor"),
        ("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", "AppArmor"),
        ("bwrap: loopback: Failed to create NETLINK_ROUTE socket: x", "AF_NETLINK"),
        ("bwrap: No permissions to create a new namespace, likely because", "RestrictNamespaces="),
        ("bwrap: nesting depth or max_*_namespaces exceeded (ENOSPC)", "user.max_user_namespaces"),
        (
            "bwrap: Can't mount proc on /newroot/proc: Operation not permitted",
            "ProtectKernelTunables=",
        ),
        ("bwrap: Can't read /proc/sys/kernel/overflowuid: No such file", "ProcSubset=pid"),
        ("bwrap: Can't open source /usr: Function not implemented", "RestrictSUIDSGID="),
        ("bwrap: pivot_root: Invalid argument", "initramfs"),
        ("bwrap: setuid use of bubblewrap is not supported in this build", "dpkg-statoverride"),
        ("bwrap: Can't find source path /dev/i2c-1: No such file", "DeviceAllow="),
        ("bwrap: Unknown option --bind-fd", "too old"),
        ("bwrap: Creating new namespace failed: Resource temporarily unavailable", "TasksMax="),
    ],
)
def test_known_failure_has_a_remedy(message: str, part: str) -> None:
    assert part in remedy(message)


def test_unknown_failure_has_none() -> None:
    assert remedy("bwrap: something new") == ""


@pytest.mark.parametrize(
    ("output", "version"),
    [("bubblewrap 0.8.0\n", (0, 8, 0)), ("bubblewrap 0.12\n", (0, 12)), ("", ()), ("x 1.y", ())],
)
def test_version_is_read_or_unknown(output: str, version: tuple[int, ...]) -> None:
    assert parse_version(output) == version
