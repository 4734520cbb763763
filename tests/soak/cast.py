"""Consumer processes that come, go and are killed while messages flow."""

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from tests.interop.processes import ChildProcess
from tests.soak.ledger import GroupLedger
from tests.soak.member import GROUPS
from tests.soak.notes import Kind, Note, NoteReader

PATIENCE = 60.0

_ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}


class Cast:
    """The members of the groups, and the ledgers that are kept from their notes."""

    def __init__(self, name_server: str, topic: str, directory: Path) -> None:
        self.ledgers = [GroupLedger(ordered=group == GROUPS[-1]) for group in GROUPS]
        self.topic = topic
        self.changes = 0
        self.log_lines = 0
        self._command = [sys.executable, "-m", "tests.soak.member", name_server, topic]
        self._directory = directory
        self._names = count(1)
        self._members: dict[str, tuple[str, ChildProcess]] = {}
        self._readers: dict[str, NoteReader] = {}

    async def come(self, role: str, groups: Sequence[str] = GROUPS) -> None:
        """Have a process consume for these groups, until `go` or `kill` of the same role."""
        name = f"{role}-{next(self._names)}"
        notes = self._directory / f"{name}.notes"
        process = await asyncio.to_thread(
            ChildProcess, name, [*self._command, str(notes), *groups], _ENVIRONMENT
        )
        self._members[role] = name, process
        self._readers[name] = NoteReader(notes)
        for group in groups:
            await asyncio.to_thread(process.wait_for_line, f"^ready {group}$", PATIENCE)
        self.changes += 1

    async def go(self, role: str) -> None:
        """Ask a member to leave; it must do so in good order."""
        _name, process = self._members.pop(role)
        await asyncio.to_thread(process.stop, PATIENCE)
        process.wait()  # raises if it did not end well
        self._forget(process)

    async def kill(self, role: str) -> None:
        name, process = self._members.pop(role)
        await asyncio.to_thread(process.kill)
        at = time.monotonic()
        self.read_notes()
        for ledger in self.ledgers:
            ledger.ended(name, at)
        self._forget(process)

    async def leave(self) -> None:
        """Everybody goes."""
        for role in list(self._members):
            await self.go(role)
        self.read_notes()

    def pid(self, role: str) -> int:
        return self._members[role][1].pid

    def check_alive(self) -> None:
        for _name, process in self._members.values():
            if not process.running:
                raise process.failure("ended by itself")

    def close(self) -> None:
        for _name, process in self._members.values():
            process.kill()

    def read_notes(self) -> None:
        """Take into the ledgers what members noted since the last time."""
        for name, reader in self._readers.items():
            for note in reader.news():
                self._enter(name, note)

    def _enter(self, name: str, note: Note) -> None:
        kind, group, queue, number, offset, at = note
        ledger = self.ledgers[group]
        if kind == Kind.DELIVERED:
            ledger.delivered(name, queue, offset, number, at)
        elif kind == Kind.GAINED:
            ledger.gained(name, queue, at)
        elif kind == Kind.LOST:
            ledger.lost(name, queue, at)
        else:
            ledger.ended(name, at)

    def _forget(self, process: ChildProcess) -> None:
        self.changes += 1
        self.log_lines += len(process.output)
