"""Sees nothing of the call before."""

import os
import socket

found = [
    f
    for f in ("/tmp", "/dev/shm", "/var/tmp", "/run", "/", "/dev/mqueue")
    if os.path.exists(f + "/left")
]
with socket.socket(socket.AF_UNIX) as client:
    if client.connect_ex("\0left") == 0:
        found.append("socket")
if "left" in globals() or hasattr(os, "left"):
    found.append("global")
os.left = True
print("ESCAPED:", found) if found else print("HELD")
