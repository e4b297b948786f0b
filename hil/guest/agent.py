"""Does in a guest what the tests say: lines of JSON on TCP port 7000, or on the terminal named.

{"run": "...", "timeout": 30} -> {"status": 0, "output": "...", "errors": "..."};
{"put": "/path", "data": base64} and {"get": "/path"} -> {"status": 0, "data": base64}.
What `run` leaves in the background must have its output elsewhere, for the end of it is
waited for.
"""

import base64
import io
import json
import os
import socket
import subprocess
import sys
import threading
import tty

PORT = 7000
READY = "the agent listens"


def answer(asked):
    if "put" in asked:
        os.makedirs(os.path.dirname(asked["put"]), exist_ok=True)
        with open(asked["put"], "wb") as file:
            file.write(base64.b64decode(asked["data"]))
        return {"status": 0, "data": ""}
    if "get" in asked:
        with open(asked["get"], "rb") as file:
            return {"status": 0, "data": base64.b64encode(file.read()).decode()}
    done = subprocess.run(
        ["/bin/sh", "-c", asked["run"]],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=asked["timeout"],
    )
    output, errors = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
    return {"status": done.returncode, "output": output, "errors": errors}


def serve(lines):
    for line in lines:
        try:
            answered = answer(json.loads(line))
        except Exception as error:
            answered = {"status": 125, "output": "", "errors": repr(error), "data": ""}
        lines.write(json.dumps(answered).encode() + b"\n")
        lines.flush()


def serve_terminal(path):
    fd = os.open(path, os.O_RDWR | os.O_NOCTTY)
    tty.setraw(fd)
    os.write(fd, READY.encode() + b"\n")
    serve(io.BufferedRWPair(io.FileIO(fd), io.FileIO(os.dup(fd), "w")))


def serve_port():
    listener = socket.create_server(("0.0.0.0", PORT))
    print(READY, flush=True)
    while True:
        connection, _ = listener.accept()
        lines = connection.makefile("rwb")
        threading.Thread(target=serve, args=(lines,), daemon=True).start()


if sys.argv[1:]:
    serve_terminal(sys.argv[1])
else:
    serve_port()
