"""What a controller reads: entries of the log, snapshots, the files of its journal."""

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from bolide.controller.commands import (
    Alter,
    ApplyId,
    Candidate,
    Clean,
    Command,
    Elect,
    Lead,
    Register,
    encode_entry,
)
from bolide.controller.journal import SyncedJournal, write_snapshot
from bolide.controller.journal import read_snapshot as read
from bolide.controller.state import Machine

_GROUP: list[Command] = [
    ApplyId("c", "g", 1, "b1;1"),
    ApplyId("c", "g", 2, "b2;1"),
    Register("g", 1, "b1"),
    Elect(group="g", epoch=0, broker=1),
    Alter(group="g", master=1, epoch=1, set_epoch=1, new=(1, 2), alive=(1, 2)),
    Elect(group="g", epoch=1, alive=(Candidate(2, 1, 5),)),
    Clean(group="g", ids=(2,), forced=True),
]


def entry(data: bytes) -> None:
    """An entry of the log never raises, and the state can be written and read again."""
    machine = Machine()
    machine.apply(encode_entry("n0", 0, [Lead()]))
    machine.apply(data)
    machine.apply(encode_entry("n0", 1, _GROUP))
    other = Machine()
    other.restore(machine.encode())
    assert other.groups == machine.groups


def entry_seeds() -> Iterable[bytes]:
    for command in _GROUP:
        yield encode_entry("n0", 1, [command])
    yield encode_entry("n0", 1, _GROUP)
    yield encode_entry("n1", 1, [Lead()])


def journal(data: bytes) -> None:
    """A journal opens with the entries before the first bad byte, or is refused; never changed."""
    with TemporaryDirectory() as directory:
        path = Path(directory) / "journal"
        path.write_bytes(data)
        opened = SyncedJournal(path)
        entries = opened[:]
        opened.close()
        again = SyncedJournal(path)
        assert again[:] == entries
        again.close()


def journal_seeds() -> Iterable[bytes]:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "journal"
        opened = SyncedJournal(path)
        for number in range(1, 6):
            opened.add(b"command" * number, number, 0)
        opened.close()
        yield path.read_bytes()


def snapshot(data: bytes) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "snapshot"
        path.write_bytes(data)
        state, _ = read(path)
        Machine().restore(state)


def snapshot_seeds() -> Iterable[bytes]:
    machine = Machine()
    machine.apply(encode_entry("n0", 0, [Lead()]))
    machine.apply(encode_entry("n0", 1, _GROUP))
    with TemporaryDirectory() as directory:
        path = Path(directory) / "snapshot"
        write_snapshot(path, machine.encode(), [(b"a", 1, 1), (b"b", 2, 1)])
        yield path.read_bytes()
