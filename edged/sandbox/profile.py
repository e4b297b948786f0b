"""What one sandboxed run may see and use, as a frozen value.

Pure: no I/O. `bwrap` turns a profile into bubblewrap's arguments, `limits`
enforces the numbers, `run` starts it.
"""

from __future__ import annotations

import msgspec

MIB = 1 << 20


class Bind(msgspec.Struct, frozen=True, gc=False):
    """One host path shown inside.

    Attributes:
        source: absolute host path; opened without following links when it is
            under a directory that a tool can write (`anchor`).
        target: absolute path inside.
        write: read-write when true.
        anchor: host directory below which no component of `source` may be a
            link (the data directory); empty for paths of the system.
        optional: skipped when the source is missing.
        identity: device and inode that an anchored source must have; empty: any.
    """

    source: str
    target: str
    write: bool = False
    anchor: str = ""
    optional: bool = False
    identity: tuple[int, int] | tuple[()] = ()


class Limits(msgspec.Struct, frozen=True, gc=False):
    """Limits of the whole process tree of one call.

    Sizes in bytes, times in seconds.
    """

    wall_s: float = 60.0
    memory_max: int = 256 * MIB
    tasks_max: int = 64
    cpu_s: int = 0
    """CPU seconds of one process; 0: wall time times the number of cores."""
    file_size_max: int = 256 * MIB
    disk_max: int = 512 * MIB
    """Growth of the writable directories during the call."""
    files_max: int = 50_000
    """Files and directories added there during the call."""
    output_max: int = 64 * MIB
    """Bytes of stdout and stderr before the call is ended."""
    nofile: int = 512
    tmp_size: int = 32 * MIB
    data_reserve: int = 512 * MIB
    """Writable address space that the runtime maps and leaves empty, added to RLIMIT_DATA.

    Measured: Node 24 (V8 13.6) on x86-64 maps 512 MiB `rwxp` for its code, Node 20,
    Python and bash nothing. Give 0 for those.
    """


class Profile(msgspec.Struct, frozen=True, gc=False):
    """All that a sandbox is made of, apart from the command."""

    binds: tuple[Bind, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    cwd: str = "/"
    network: bool = False
    devices: tuple[str, ...] = ()
    """Device nodes by exact name, `/dev/i2c-1`."""
    links: tuple[tuple[str, str], ...] = ()
    """Symbolic links made in the empty root: path inside, target."""
    limits: Limits = Limits()
    free_env: bool = False
    """Variables of the runtime (`PYTHONPATH`, `NODE_OPTIONS`) too: the owner wrote them."""
    own_home: bool = False
    """`HOME` is fresh, and Python imports nothing from there or from the working directory."""

    def adding(self, most: int) -> Profile:
        """The same, with so many bytes that a call may add to its directories."""
        if most == self.limits.disk_max:
            return self
        limits = msgspec.structs.replace(self.limits, disk_max=most)
        return msgspec.structs.replace(self, limits=limits)
