"""A tool without a sandbox, for `sandbox: none`: an explicit choice of the operator.

The paths that a sandbox would show are written as those of the host, the variables
are the tool's own alone, limits and messages are the same. Nothing is hidden, what
leaves the process group lives on where there are no control groups, and a tool that
has the sandbox's paths written in its code does not find them. Loop thread only.
"""

from __future__ import annotations

import contextlib
import glob
import os
import signal

from edged.sandbox import bwrap, limits, proc
from edged.sandbox.profile import Profile
from edged.sandbox.run import Instance

_TASKS = 1 << 20
"""RLIMIT_NPROC counts all processes of the account here, so it is no limit of a call."""


def host_path(path: str, profile: Profile) -> str:
    """The host's name of a path inside; itself when nothing is shown there."""
    for link, target in profile.links:
        if path == link or path.startswith(link + "/"):
            path = target + path[len(link) :]
    for bind in profile.binds:
        if path == bind.target or path.startswith(bind.target + "/"):
            return bind.source + path[len(bind.target) :]
    for bind in profile.binds:  # a directory that exists only to hold others
        if os.path.dirname(bind.target) == path:
            return os.path.dirname(bind.source)
    return path


def host_value(value: str, profile: Profile) -> str:
    """A variable with each path of its colon-separated list as the host's."""
    return ":".join(host_path(part, profile) for part in value.split(":"))


class Unconfined(Instance):
    """Serves one call as a plain process group of the tools' account."""

    def _launch(self, theirs: list[int], stdio: list[int]) -> None:
        profile = self.job.profile
        env = {"PATH": bwrap.PATH, "LANG": "C.UTF-8"}
        env |= {name: host_value(value, profile) for name, value in self._env(theirs)}
        opened: list[int] = []
        self._open_binds(opened)  # refuses links, and is watched for its growth
        for fd in opened:
            os.close(fd)
        if self.job.calls:
            account = self._machine.account
            os.symlink("token", self._lock + ".free")
            os.chown(self._lock + ".free", account.uid, account.gid, follow_symlinks=False)
        self._spawn(self._inner(), theirs, stdio, env, host_path(profile.cwd, profile))

    def _inner(self) -> list[str]:
        profile = self.job.profile
        values = limits.rlimits(profile.limits, self._machine.cores, self._machine.backend.level)
        hard = limits.hard_limits()["nproc"]
        values["nproc"] = _TASKS if hard < 0 else hard
        argv = [host_path(word, profile) for word in self.job.argv]
        return limits.ulimit_script(values, self._words(argv), self.gate)

    def _launched(self) -> None:
        self.pid = self._process.pid
        self._fds["init"] = os.pidfd_open(self.pid)
        self._read("init", self._on_dead)
        self.group.add(self.pid)

    def processes(self) -> list[int]:
        """The live processes: the host, and what it started."""
        return proc.tree(self.pid) if "init" in self._fds else []

    def _finish(self) -> None:
        for path in glob.glob(self._lock + ".*"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        super()._finish()

    def kill(self) -> None:
        """SIGKILL the process group; what left it is killed by the control group, if any."""
        super().kill()
        self._kill_group()

    def _on_exit(self) -> None:
        self._kill_group()
        super()._on_exit()

    def _kill_group(self) -> None:
        self.group.kill()
        if self.pid:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
