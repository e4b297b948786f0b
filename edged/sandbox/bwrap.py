"""A profile as bubblewrap's arguments: an empty root, and what is added to it.

Pure but for `host_layout`. Nothing is mounted below a directory that a tool can
write: before 0.12.0 bubblewrap follows links there (CVE-2026-87766). Values of
variables and paths go by `--args FD`, so that `ps` shows none of them.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from edged.errors import SandboxSetupError
from edged.sandbox.profile import Bind, Profile

PROGRAM = "bwrap"
PATH = "/usr/local/bin:/usr/bin:/bin"

_ROOT_DIRS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = (
    "ld.so.cache",
    "alternatives",
    "ssl/certs",
    "ca-certificates",
    "localtime",
    "nsswitch.conf",
)
_ETC_NETWORK = ("hosts", "services")
_NAMESPACES = (
    "--unshare-user",
    "--disable-userns",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
)
_RULES = ("--die-with-parent", "--new-session", "--cap-drop", "ALL")
_NOT_DEVICES = frozenset({"fd", "hugepages", "log", "mqueue", "pts", "shm"})
"""Of /dev: other processes' files and sockets, no hardware."""
_REFUSED_PREFIXES = ("LD_", "PYTHON")
_REFUSED_NAMES = frozenset({"GLIBC_TUNABLES", "BASH_ENV", "ENV", "NODE_OPTIONS"})
_OWN_HOME = (
    *("--setenv", "HOME", "/tmp"),  # noqa: S108  inside
    *("--setenv", "PYTHONNOUSERSITE", "1"),
    *("--setenv", "PYTHONSAFEPATH", "1"),
)


class Layout(msgspec.Struct, frozen=True, gc=False):
    """What the top of the host's root looks like.

    Attributes:
        links: path and target of those of `/bin`, `/lib` ... that are links.
        dirs: those that are directories.
        resolv_conf: the real file behind `/etc/resolv.conf`, or empty.
    """

    links: tuple[tuple[str, str], ...] = ()
    dirs: tuple[str, ...] = ()
    resolv_conf: str = ""


class _Mount(NamedTuple):
    """One thing made in the new root."""

    target: str
    options: tuple[str, ...]
    write: bool = False


def host_layout(root: str = "/") -> Layout:
    """Read the host's layout, once at start.

    Args:
        root: the directory to read as if it were `/`.
    """
    links: list[tuple[str, str]] = []
    dirs: list[str] = []
    for path in _ROOT_DIRS:
        real = os.path.join(root, path[1:])
        if os.path.islink(real):
            links.append((path, os.readlink(real)))
        elif os.path.isdir(real):
            dirs.append(path)
    resolv = os.path.realpath(os.path.join(root, "etc/resolv.conf"))
    return Layout(tuple(links), tuple(dirs), resolv if os.path.isfile(resolv) else "")


def arguments(profile: Profile, layout: Layout, fds: Mapping[str, int]) -> list[str]:
    """The options for `--args`, in the order in which bubblewrap must do them.

    Args:
        profile: what the run may see.
        layout: of this host.
        fds: descriptors of bind sources that were opened with `O_PATH`, by source.
            bubblewrap closes each after its one use. An optional source that is
            written or anchored and not here was missing, and is skipped.

    Raises:
        ValueError: a written or anchored bind without a descriptor.
        SandboxSetupError: a profile that must not be run; says what to change.
    """
    _check_descriptors(profile.binds, fds)
    binds = ((bind, _by_descriptor(bind, fds)) for bind in profile.binds)
    return _options(profile, layout, binds, profile.env)


def places(profile: Profile, layout: Layout) -> list[str]:
    """Absolute paths that a run has, with all that is below them there."""
    mounts = [mount.target for mount in _system(profile, layout)]
    return [*mounts, *(link for link, _ in profile.links), *(b.target for b in profile.binds)]


def command(
    args_fd: int, seccomp_fd: int, info_fd: int, block_fd: int, argv: Sequence[str]
) -> list[str]:
    """The command line that `ps` shows; everything of value is behind `args_fd`."""
    numbers = ("--args", args_fd, "--seccomp", seccomp_fd, "--info-fd", info_fd)
    return [PROGRAM, *map(str, numbers), "--block-fd", str(block_fd), "--", *argv]


def pasteable(
    profile: Profile, layout: Layout, argv: Sequence[str], hide: frozenset[str] = frozenset()
) -> str:
    """The same run as one shell line, by path and without the seccomp filter.

    Args:
        profile: what the run may see.
        layout: of this host.
        argv: the command inside.
        hide: names of variables whose values are shown as `***`.
    """
    binds = ((bind, _by_path(bind)) for bind in profile.binds)
    env = tuple((name, "***" if name in hide else value) for name, value in profile.env)
    options = _options(profile, layout, binds, env)
    return shlex.join(["env", "-i", "bwrap", *options, "--", *argv])


def _options(
    profile: Profile,
    layout: Layout,
    binds: Iterable[tuple[Bind, tuple[str, ...]]],
    env: tuple[tuple[str, str], ...],
) -> list[str]:
    added = [_Mount(bind.target, options, bind.write) for bind, options in binds if options]
    mounts = [
        *_system(profile, layout),
        *(_Mount(path, ("--symlink", target, path)) for path, target in profile.links),
        *(mount for mount in added if not mount.write),
        *(mount for mount in added if mount.write),
    ]
    _check_mounts(mounts)
    options = [
        *_NAMESPACES,
        *(() if profile.network else ("--unshare-net",)),
        *_RULES,
        *(option for mount in mounts for option in mount.options),
        *("--remount-ro", "/proc/1", "--remount-ro", "/dev", "--remount-ro", "/"),
        *("--chdir", profile.cwd, "--clearenv"),
        *_setenv(env, free=profile.free_env),
        *(_OWN_HOME if profile.own_home else ()),
    ]
    for option in options:
        if "\0" in option:  # would become two options behind --args
            raise SandboxSetupError(f"{option!r} has a NUL byte")
    return options


def _system(profile: Profile, layout: Layout) -> Iterator[_Mount]:
    """What every run has: programs, libraries, a few files of /etc, fresh trees."""
    size = str(profile.limits.tmp_size)
    yield _Mount("/usr", ("--ro-bind", "/usr", "/usr"))
    for path, target in layout.links:
        yield _Mount(path, ("--symlink", target, path))
    for path in layout.dirs:
        yield _Mount(path, ("--ro-bind", path, path))
    for name in _ETC:
        yield _try("/etc/" + name)
    if profile.network:
        if layout.resolv_conf:
            yield _try(layout.resolv_conf, "/etc/resolv.conf")
        for name in _ETC_NETWORK:
            yield _try("/etc/" + name)
    yield _Mount("/proc", ("--proc", "/proc"))
    # The first process ends all others with the daemon. Its account is the tool's, which
    # could write its memory, and so keep it from dying.
    yield _Mount("/proc/1", ("--tmpfs", "/proc/1"))
    yield _Mount("/dev", ("--dev", "/dev"))
    yield _Mount("/dev/shm", ("--size", size, "--tmpfs", "/dev/shm"))  # noqa: S108 - inside
    for device in profile.devices:
        yield _device(device)
    yield _Mount("/tmp", ("--size", size, "--perms", "1777", "--tmpfs", "/tmp"))  # noqa: S108 - inside


def _try(source: str, target: str = "") -> _Mount:
    target = target or source
    return _Mount(target, ("--ro-bind-try", source, target))


def _device(path: str) -> _Mount:
    parts = path.split("/")
    named = parts[:2] == ["", "dev"] and len(parts) > 2 and os.path.normpath(path) == path
    if not named or parts[2] in _NOT_DEVICES:
        raise SandboxSetupError(f"device {path!r}: write its exact node, such as /dev/i2c-1")
    return _Mount(path, ("--dev-bind-try", path, path))


def _check_descriptors(binds: tuple[Bind, ...], fds: Mapping[str, int]) -> None:
    used: set[str] = set()
    for bind in binds:
        opened = bind.source in fds
        if opened and bind.source in used:
            raise SandboxSetupError(f"{bind.source} is bound twice: use a link for {bind.target}")
        if not opened and not bind.optional and (bind.write or bind.anchor):
            raise ValueError(f"{bind.source}: a written or anchored bind needs a descriptor")
        used.add(bind.source)


def _by_descriptor(bind: Bind, fds: Mapping[str, int]) -> tuple[str, ...]:
    if bind.source in fds:
        option = "--bind-fd" if bind.write else "--ro-bind-fd"
        return (option, str(fds[bind.source]), bind.target)
    return () if bind.write or bind.anchor else _by_path(bind)


def _by_path(bind: Bind) -> tuple[str, ...]:
    option = ("--bind" if bind.write else "--ro-bind") + ("-try" if bind.optional else "")
    return (option, bind.source, bind.target)


def _check_mounts(mounts: list[_Mount]) -> None:
    for mount in mounts:
        path = mount.target
        if not path.startswith("/") or path.startswith("//") or os.path.normpath(path) != path:
            raise SandboxSetupError(f"{path!r}: write an absolute path without . or ..")
    for written in (mount for mount in mounts if mount.write):
        below = written.target.rstrip("/") + "/"
        for other in mounts:
            if other is not written and (other.target + "/").startswith(below):
                raise SandboxSetupError(
                    f"{other.target} would be mounted in {written.target}, which tools can"
                    " write (CVE-2026-87766): mount it elsewhere"
                )


def _setenv(env: tuple[tuple[str, str], ...], *, free: bool) -> Iterator[str]:
    for name, value in env:
        _check_variable(name, value, free=free)
    base = {"PATH": PATH, "LANG": "C.UTF-8", "TMPDIR": "/tmp"}  # noqa: S108 - inside
    for name, value in {**base, **dict(env)}.items():
        yield from ("--setenv", name, value)


def _check_variable(name: str, value: str, *, free: bool) -> None:
    if not (name.isascii() and name.isidentifier()):
        raise SandboxSetupError(f"variable {name!r}: letters, digits and _ only")
    if not free and (name in _REFUSED_NAMES or name.startswith(_REFUSED_PREFIXES)):
        raise SandboxSetupError(f"variable {name} would change the runtime: rename it")
    if "\0" in value:
        raise SandboxSetupError(f"variable {name}: its value has a NUL byte")
