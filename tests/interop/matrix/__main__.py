"""`python -m tests.interop.matrix`: play the whole matrix and print it as a table.

With `--write` it becomes docs/compatibility-matrix.md. With brokers or clients as words, only those
are played: `python -m tests.interop.matrix ours java5`.
"""

import sys
import tempfile
import traceback
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path

from bolide.version import __version__
from tests.interop import apache, golang
from tests.interop.bench import Bench
from tests.interop.matrix import brokers
from tests.interop.matrix.cells import CELLS, KNOWN, Cell
from tests.interop.matrix.players import CLIENTS, GO, OURS, REPOSITORY, Absent, CellFailed, Players

PAGE = REPOSITORY / "docs" / "compatibility-matrix.md"
GREEN = "✓"

INTRODUCTION = """# Compatibility matrix

Every client with every broker, cell by cell. The tests play all of it: our broker with our client,
Apache's newest two in Java and that for Go in `make test`, the rest in `make test-long`.
This page was written by `python -m tests.interop.matrix --write` on {date}.

{green} means that all was seen that must be seen; a number points to a note at the end. Apache's
clients with Apache's brokers are there to show that the cells themselves are right. The broker
of 4.9 is 4.9.7, because Maven Central has no server of 4.9.8, only the clients.
"""

Column = tuple[str, str]
Outcomes = dict[tuple[Column, str], str]


def main(words: Collection[str]) -> None:
    chosen_brokers = [each for each in brokers.BROKERS if _is_chosen(each, words, brokers.BROKERS)]
    chosen_clients = [each for each in CLIENTS if _is_chosen(each, words, CLIENTS)]
    outcomes: Outcomes = {}
    for broker in chosen_brokers:
        outcomes |= play(broker, chosen_clients)
    page = "\n".join(_page(outcomes, chosen_brokers, chosen_clients))
    if "--write" in words:
        PAGE.write_text(page)
    else:
        print(page)


def _is_chosen(name: str, words: Collection[str], names: Collection[str]) -> bool:
    """ "ours" is the name of a broker and of a client, so alone it chooses nothing."""
    wanted = set(words) & set(names) - {OURS}
    return name in wanted or not wanted


def play(broker: str, clients: Collection[str]) -> Outcomes:
    """What became of each cell: green or the reason."""
    aged = [cell.topic(client) for client in clients for cell in CELLS.values() if cell.aged]
    outcomes: Outcomes = {}
    with (
        tempfile.TemporaryDirectory() as directory,
        Bench(Path(directory) / "java") as bench,
        brokers.cluster(broker, Path(directory) / "ours", bench, aged=aged) as cluster,
        Players(cluster, bench) as players,
    ):
        for client in clients:
            players.begin(client, CELLS.values())
        for client in clients:
            for cell in CELLS.values():
                outcomes[(broker, client), cell.name] = _outcome(players, client, cell)
                print(broker, client, cell.name, outcomes[(broker, client), cell.name][:60],
                      file=sys.stderr)  # fmt: skip
    return outcomes


def _outcome(players: Players, client: str, cell: Cell) -> str:
    try:
        cell.check(players.seen(client, cell))
    except Absent as absent:
        return str(absent)
    except Exception as failed:  # noqa: BLE001 - the table tells it
        known = KNOWN.get((players.broker, client, cell.name))
        return known or _reason(failed)
    return GREEN


def _reason(failed: Exception) -> str:
    lines = str(failed).splitlines()
    if isinstance(failed, CellFailed):
        causes = [line for line in lines if line.startswith("Caused by:")]
        lines = [lines[0], *causes[-1:]]
    where = traceback.extract_tb(failed.__traceback__)[-1].line or ""
    return " ".join([type(failed).__name__, where, *lines[:2]])


def _page(
    outcomes: Outcomes, chosen_brokers: Collection[str], clients: Collection[str]
) -> Iterator[str]:
    yield INTRODUCTION.format(date=datetime.now(UTC).date(), green=GREEN)
    notes: list[str] = []
    for broker in chosen_brokers:
        yield f"## Broker: {_named(broker)}\n"
        yield "| Client | " + " | ".join(map(_named, clients)) + " |"
        yield "| --- |" + " :-: |" * len(clients)
        for cell in CELLS.values():
            signs = [_sign(outcomes[(broker, client), cell.name], notes) for client in clients]
            yield f"| {cell.title} | " + " | ".join(signs) + " |"
        yield ""
    yield "## Notes\n"
    yield from (f"{number}. {note}" for number, note in enumerate(notes, 1))
    yield ""


def _sign(outcome: str, notes: list[str]) -> str:
    if outcome == GREEN:
        return GREEN
    if outcome not in notes:
        notes.append(outcome)
    return f"({notes.index(outcome) + 1})"


def _named(name: str) -> str:
    if name == OURS:
        return f"Bolide {__version__}"
    if name == GO:
        return f"Apache's Go {golang.client_version()}"
    return f"Apache {apache.releases()[CLIENTS.get(name, name)].version}"


if __name__ == "__main__":
    main(sys.argv[1:])
