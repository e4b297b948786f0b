"""Does in the emulated board what the tests say: lines of JSON on TCP port 7000.

{"run": "...", "timeout": 30} -> {"status": 0, "output": "...", "errors": "..."};
{"put": "/path", "data": base64} and {"get": "/path"} -> {"status": 0, "data": base64}.
What `run` leaves in the background must have its output elsewhere, for the end of it is
waited for.
"""

import base64
import json
import os
import socket
import subprocess
import threading

PORT = 7000


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


listener = socket.create_server(("0.0.0.0", PORT))
print("the agent listens", flush=True)
while True:
    connection, _ = listener.accept()
    threading.Thread(target=serve, args=(connection.makefile("rwb"),), daemon=True).start()
