"""Leaves something in every place that could live on; state_read looks for it."""

import os
import socket

for folder in ("/tmp", "/dev/shm", "/var/tmp", "/run", "/", "/dev/mqueue"):
    try:
        with open(folder + "/left", "w") as file:
            file.write("left")
    except OSError:
        continue
if not os.fork():
    os.setsid()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("\0left")
        server.listen()
        while True:
            server.accept()
print("HELD")
