"""Virtual environments of peers that only the bench runs, made once in the user's cache."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path


def python(name: str, *pins: str) -> str:
    """The interpreter of an environment that has these packages."""
    key = hashlib.sha256(repr((sys.version, pins)).encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "edged-bench")
    cache.mkdir(parents=True, exist_ok=True)
    place = cache / f"{name}-{key}"
    program = str(place / "bin/python")
    # It cannot be moved once it is made: one that was not finished is made again.
    finished = place / "finished"
    with open(cache / f"{name}.lock", "w", encoding="utf-8") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not finished.exists():
            shutil.rmtree(place, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", place], check=True)
            quiet = ("--quiet", "--disable-pip-version-check")
            subprocess.run([program, "-m", "pip", "install", *quiet, *pins], check=True)
            finished.touch()
    return program
