"""No new namespace, no mount, no change of root, by any system call."""

import ctypes
import os
import struct

libc = ctypes.CDLL(None, use_errno=True)
machine = os.uname().machine if struct.calcsize("P") == 8 else "arm"
numbers = {
    "x86_64": {
        "clone": 56,
        "mount": 165,
        "unshare": 272,
        "chroot": 161,
        "setns": 308,
        "umount": 166,
    },
    "aarch64": {
        "clone": 220,
        "mount": 40,
        "unshare": 97,
        "chroot": 51,
        "setns": 268,
        "umount": 39,
    },
    "arm": {"clone": 120, "mount": 21, "unshare": 337, "chroot": 61, "setns": 375, "umount": 52},
}[machine]
clone3 = struct.pack("=8Q", 0x10000000, 0, 0, 0, 17, 0, 0, 0)
attempts = {
    "unshare user": (numbers["unshare"], 0x10000000),
    "unshare mount": (numbers["unshare"], 0x00020000),
    "unshare net": (numbers["unshare"], 0x40000000),
    "clone user": (numbers["clone"], 0x10000000 | 17, 0, 0, 0, 0),
    "clone3 user": (435, clone3, len(clone3)),
    "mount tmpfs": (numbers["mount"], b"none", b"/tmp", b"tmpfs", 0, None),
    "remount": (numbers["mount"], None, b"/usr", None, 4096 | 32, None),
    "umount": (numbers["umount"], b"/proc", 2),
    "chroot": (numbers["chroot"], b"/tmp"),
    "open_tree": (428, -100, b"/tmp", 1),
    "fsopen": (430, b"tmpfs", 0),
    "mount_setattr": (442, -100, b"/usr", 0, b"\0" * 32, 32),
}
found = []
for name, call in attempts.items():
    child = os.fork()
    if not child:
        os._exit(0 if libc.syscall(*call) >= 0 else 1)
    if os.waitpid(child, 0)[1] == 0:
        found.append(name)
print("ESCAPED:", found) if found else print("HELD")
