"""One member of a local cluster as a child process."""

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress

from bolide.cluster.plan import Member
from bolide.cluster.proxy import descendants
from bolide.errors import BolideError
from bolide.lifeline import lifeline_environment
from bolide.remoting.tasks import uninterrupted

log = logging.getLogger(__name__)

_START_WITHIN = 60.0
_STOP_WITHIN = 60.0
_POLL = 0.05
MEMBER_VARIABLE = "BOLIDE_CLUSTER_MEMBER"
"""The directory of the member, in the environment of all its processes."""
_ALL_SERVE = "workers serve"
"""What a broker with --workers prints when all of them are ready."""


class MemberFailed(BolideError):
    """A member did not start; the text has its last line of output."""

    def __init__(self, member: Member, reason: str) -> None:
        super().__init__(f"{member.name} {reason}: {_last_line(member)}")


class MemberProcess:
    """Starts, stops and signals the processes of one member; belongs to one event loop.

    Args:
        module: what Python runs; it takes the command line of `bolide`.
    """

    def __init__(self, member: Member, prefix: Sequence[str], module: str = "bolide") -> None:
        self.member = member
        self.is_paused = False
        self.started_at = 0.0
        """Wall clock time of the last start."""
        self._prefix = prefix
        self._module = module
        self._process: Process | None = None
        self._lifeline: socket.socket | None = None
        self._has_workers = "workers" in member.settings

    @property
    def pid(self) -> int | None:
        """The process id, or None if it does not run."""
        return self._process.pid if self._process and self._process.returncode is None else None

    @property
    def pids(self) -> list[int]:
        """Its process and its worker processes."""
        if self.pid is None:
            return []
        return descendants(self.pid) if self._has_workers else [self.pid]

    async def start(self, environment: Mapping[str, str] | None = None) -> None:
        """Start it and wait until it serves.

        Raises:
            MemberFailed: it ended before that, or took too long.
        """
        if self.pid is not None:
            return
        self.is_paused = False
        output_at = _size(self.member)
        await uninterrupted(self._spawn(environment or {}))  # what was started must be stopped
        self.started_at = time.time()
        ready = self._until_workers_serve(output_at) if self._has_workers else self._until_ready()
        try:
            is_ready = await asyncio.wait_for(ready, _START_WITHIN)
        except TimeoutError:
            await self.kill()
            raise MemberFailed(self.member, f"did not serve within {_START_WITHIN:g} s") from None
        if not is_ready:
            assert self._process is not None
            await self._process.wait()
            raise MemberFailed(self.member, "ended before it served")

    async def _spawn(self, environment: Mapping[str, str]) -> None:
        self.close()
        self._lifeline, child_end = socket.socketpair()
        self._lifeline.setblocking(False)
        member = self.member
        passed: dict[str, str] = {**os.environ, **environment}
        passed[MEMBER_VARIABLE] = os.fspath(member.directory)
        # A broker with a lifeline is a worker itself, and starts no others.
        if not self._has_workers:
            passed |= lifeline_environment(child_end, member.name)
        words = (member.role.value, "-c", str(member.config_file))
        with child_end, member.output_file.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *self._prefix, sys.executable, "-P", "-m", self._module, *words,
                stdin=DEVNULL, stdout=output, stderr=output, start_new_session=True,
                pass_fds=[child_end.fileno()], env=passed,
            )  # fmt: skip

    async def _until_ready(self) -> bool:
        assert self._lifeline is not None
        with suppress(ConnectionError):
            return await asyncio.get_running_loop().sock_recv(self._lifeline, 1) != b""
        return False

    async def _until_workers_serve(self, output_at: int) -> bool:
        while self.pid is not None:
            with self.member.output_file.open(encoding="utf-8", errors="replace") as output:
                output.seek(output_at)
                if _ALL_SERVE in output.read():
                    return True
            await asyncio.sleep(_POLL)
        return False

    def signal(self, number: signal.Signals) -> None:
        for pid in self.pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    async def kill(self) -> None:
        """End it as a crash does (SIGKILL), and wait until it is gone."""
        if self._process is not None and self.pid is not None:
            self.signal(signal.SIGKILL)
            await self._process.wait()
        self.is_paused = False

    def pause(self) -> None:
        """Stop it where it is (SIGSTOP); its connections stay open."""
        self.signal(signal.SIGSTOP)
        self.is_paused = self.pid is not None

    def resume(self) -> None:
        self.signal(signal.SIGCONT)
        self.is_paused = False

    async def stop(self) -> None:
        """End it in order (SIGTERM); one that does not end is killed."""
        if self._process is None or self.pid is None:
            return
        self.resume()
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGTERM)
        try:
            await asyncio.wait_for(self._process.wait(), _STOP_WITHIN)
        except TimeoutError:
            log.warning("%s does not end by itself and is killed", self.member.name)
            await self.kill()

    def close(self) -> None:
        if self._lifeline is not None:
            self._lifeline.close()


def _size(member: Member) -> int:
    return member.output_file.stat().st_size if member.output_file.exists() else 0


def _last_line(member: Member) -> str:
    try:
        lines = member.output_file.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return "no output"
    shown = [line for line in lines if line.strip()]
    return shown[-1] if shown else "no output"
