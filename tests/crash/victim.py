"""Lets a sender live in a directory, kills it, and looks at what it leaves behind."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from bolide.store import checkpoint
from bolide.store.appending import Appended
from bolide.store.config import FlushMode
from bolide.store.message_store import MessageStore
from bolide.store.tables import CONSUMER_OFFSETS, Table
from tests.crash.ledger import Entry, Ledger, small_config
from tests.crash.letters import Name
from tests.crash.sender import Orders
from tests.support.faults import copy_store

REPOSITORY = Path(__file__).parents[2]


class Victim:
    """One directory and the lives that are led in it."""

    def __init__(self, root: Path, mode: FlushMode) -> None:
        root.mkdir()
        self.root = root
        self.mode = mode
        self.ledger = Ledger()
        self.lives = 0
        self.saved = 0
        """Savings of the table that were reported."""
        self._now = 1_700_000_000.0

    def live(
        self,
        *,
        acks: int | None = None,
        until: Callable[[], bool] = lambda: False,
        **orders: object,
    ) -> int:
        """Let a sender run; it is killed after so many acknowledgements. Returns its exit code.

        With 0 it is killed while it opens the store; `until` is asked whenever the sender says
        something, and may end its life earlier. The messages of a life are numbered, so a
        test that fails can be run again; the moment of the kill is the system's to choose.
        """
        self.lives += 1
        spec = Orders(
            root=str(self.root), life=self.lives, mode=self.mode, now=self._now,
            **orders,  # type: ignore[arg-type]
        )  # fmt: skip
        command = [sys.executable, "-m", "tests.crash.sender", msgspec.json.encode(spec).decode()]
        env = os.environ | {"PYTHONPATH": str(REPOSITORY)}
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=env, cwd=REPOSITORY) as child:
            assert child.stdout
            left = acks if acks is not None else sys.maxsize
            for line in child.stdout:
                if not line.endswith(b"\n"):
                    break  # killed in the middle of saying it
                self._hear(json.loads(line))
                left -= line.startswith(b'["stored"')
                if left <= 0 or until():
                    child.send_signal(signal.SIGKILL)
        return child.returncode

    def check(self, scratch: Path, *, other_boot: bool = False) -> None:
        """Open a copy, so that the next life finds the directory as the last one left it."""
        copy = copy_store(self.root, scratch)
        with pytest.MonkeyPatch.context() as patch:
            if other_boot:
                patch.setattr(checkpoint, "_BOOT_ID", Path("/nonexistent"))
            with MessageStore(small_config(copy, self.mode), background=False) as store:
                self.ledger.check(store)
        table = Table(copy / "config", CONSUMER_OFFSETS)
        table.load()
        found = table.value.offset_table.get("Orders@readers", {}).get(0, 0)
        assert found in {self.saved, self.saved + 1}
        self.saved = found

    def lead_lives(self, kills: int, scratch: Path, seed: int) -> None:
        """Kill again and again in one directory, and look each time."""
        chance = random.Random(seed)
        for _ in range(kills):
            acks = chance.choice((0, 1, chance.randrange(100), chance.randrange(400)))
            assert self.live(acks=acks) == -signal.SIGKILL
            self.check(scratch, other_boot=chance.random() < 0.5)

    def _hear(self, line: list[object]) -> None:
        match line:
            case ["stored", list(entries)]:
                for name, topic, queue_id, queued, place in entries:
                    self.ledger.add(Entry(Name(*name), topic, queue_id, queued, Appended(*place)))
                    self._now = max(self._now, place[3] / 1000)
            case ["saved", int(count)]:
                self.saved = count
