"""Threads count as processes do."""

import threading

stop, count = threading.Event(), 0
threading.stack_size(65536)
try:
    for _ in range(600):
        threading.Thread(target=stop.wait, daemon=True).start()
        count += 1
except (RuntimeError, MemoryError):
    pass
stop.set()
print("ESCAPED:", count) if count >= 256 else print("HELD")
