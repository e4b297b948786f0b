"""How a Python package that is missing is had, by this interpreter and no other.

Packages of the system are not seen from a virtual environment, nor the other way round.
"""

from __future__ import annotations

import os
import sys


def install(name: str, debian: str = "") -> str:
    """The command that installs a package where edged would find it.

    Args:
        name: as pip knows it: `pyserial`, or an extra, `edged[web]`.
        debian: Debian's package of it, where there is one that is of use.
    """
    is_own = sys.prefix != sys.base_prefix
    pip = os.path.join(sys.prefix, "bin", "pip") if is_own else "pip"
    command = f"{pip} install {repr(name) if '[' in name else name}"
    if debian and any(os.path.basename(path) == "dist-packages" for path in sys.path):
        return f"apt install {debian}, or {command}"
    return command
