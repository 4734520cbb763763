"""A file of a compaction log: dumpCompactionLog."""

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from bolide.cli.admin.output import document_of, java_message
from bolide.cli.admin.session import AsDocument, NameServer
from bolide.cli.command_line import FAILED, fail
from bolide.cli.documents import print_document
from bolide.model.message import StoredMessage
from bolide.protocol.record import Blank, read_record
from bolide.protocol.record_errors import BadRecord

_MIN_RECORD = 8


def dump_compaction_log(
    file: Annotated[
        Path,
        typer.Option(
            "-f",
            "--file",
            exists=True,
            dir_okay=False,
            help="File of a compaction log, below compactionLog in a store.",
        ),
    ],
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Print the messages of a file of a compaction log, on this machine, without a broker.

    For other files of a store see `bolide store dump`.
    """
    try:
        for message in _messages(file):
            if as_document:
                print_document(document_of(message))
            else:
                print(java_message(message))
    except BadRecord as exc:
        fail(f"{file}: {exc}", FAILED)


def _messages(file: Path) -> Iterator[StoredMessage]:
    """The messages up to the end of the file or its empty rest.

    Raises:
        BadRecord: something else than a record follows.
    """
    with file.open("rb") as stream:
        size = file.stat().st_size
        if not size:
            return
        with (
            mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapping,
            memoryview(mapping) as content,
        ):
            position = 0
            while position + _MIN_RECORD <= size:
                if not any(content[position : position + _MIN_RECORD]):  # not written yet
                    return
                record = read_record(content, position)
                if isinstance(record, Blank):
                    return
                message, position = record.message(), position + record.size
                del record  # its views would keep the mapping open
                yield message
