"""No terminal is reachable, and no input can be put into one."""

import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)
libc.ioctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_char_p]
found = [fd for fd in (0, 1, 2) if os.isatty(fd)]
try:
    found.append(os.open("/dev/tty", os.O_RDWR))
except OSError:
    pass
master, slave = os.openpty()
for request in (0x5412, 0x5412 | 1 << 32, 0x541C):  # TIOCSTI, with high bits, TIOCLINUX
    if libc.ioctl(slave, request, b"#") == 0:
        found.append(hex(request))
print("ESCAPED:", found) if found else print("HELD")
