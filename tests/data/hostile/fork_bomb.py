"""Fewer than 256 processes at once."""

import os
import signal

children = []
try:
    for _ in range(600):
        child = os.fork()
        if not child:
            signal.pause()
            os._exit(0)
        children.append(child)
except OSError:
    pass
for child in children:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
print("ESCAPED:", len(children)) if len(children) >= 256 else print("HELD")
