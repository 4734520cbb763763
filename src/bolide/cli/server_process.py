"""What others on the machine learn from a server process: its run record, and when it is ready.

Those that learn it are `bolide status` and `mqshutdown`, from the run record; the supervisor that
started the server, over the lifeline; and systemd, for units with Type=notify.
"""

import os
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Self

from bolide.cli.run_records import (
    CLUSTER,
    READY,
    STANDALONE,
    STOPPING,
    WORKERS,
    RecordFile,
    record_of_this_process,
)
from bolide.lifeline import Lifeline

_NOTIFY_VARIABLE = "NOTIFY_SOCKET"
_CLUSTER_MEMBER_VARIABLE = "BOLIDE_CLUSTER_MEMBER"


class ServerProcess:
    """This process as a server, from its start to its end.

    Must be entered on the event loop of the server.

    Args:
        kind: namesrv, controller, broker, standalone, cluster or console.
        name: of the broker, or the id of the controller.
        data: the directory of its files.
        addresses: what it will listen on, as far as that is known before.
        is_worker: whether it is one of the processes of --workers.
    """

    def __init__(
        self,
        kind: str,
        name: str = "",
        *,
        data: Path,
        addresses: Iterable[str] = (),
        lifeline: Lifeline | None = None,
        is_worker: bool = False,
    ) -> None:
        self._lifeline = lifeline or Lifeline()
        self._service_manager = ServiceManager.inherited()
        in_cluster = bool(os.environ.get(_CLUSTER_MEMBER_VARIABLE))
        member_of = WORKERS if is_worker else CLUSTER if in_cluster else ""
        if self._lifeline and not member_of:  # the NameServer of standalone --workers
            member_of = STANDALONE if kind == "console" else WORKERS
        record = record_of_this_process(kind, name, data, addresses, member_of)
        self._file = RecordFile(record)

    def __enter__(self) -> Self:
        self._lifeline.__enter__()
        self._file.write()
        return self

    def __exit__(self, *_: object) -> None:
        self._file.remove()
        self._lifeline.__exit__()

    def report_ready(self, addresses: Iterable[str]) -> None:
        """Report that the server accepts requests, and what it listens on."""
        self._file.write(state=READY, addresses=tuple(addresses))
        self._lifeline.report_ready()
        self._service_manager.notify("READY=1")

    def report_stopping(self) -> None:
        """Report that the server was told to stop, ready or not."""
        self._service_manager.notify("STOPPING=1")
        self._file.write(state=STOPPING)


class ServiceManager:
    """The service manager that started this process, usually systemd, if there is one.

    The protocol is that of sd_notify(3): a datagram of VARIABLE=value lines to the socket that
    NOTIFY_SOCKET names.
    """

    def __init__(self, address: str = "") -> None:
        self._address = address

    @classmethod
    def inherited(cls) -> "ServiceManager":
        """The service manager of this process; child processes do not inherit it."""
        return cls(os.environ.pop(_NOTIFY_VARIABLE, ""))

    def notify(self, state: str) -> None:
        """Report a state. A failure is ignored: there is nobody else to report it to."""
        if not self._address.startswith(("/", "@")):
            return
        address = self._address
        if address.startswith("@"):  # the abstract namespace
            address = "\0" + address[1:]
        flags = socket.SOCK_DGRAM | getattr(socket, "SOCK_CLOEXEC", 0)
        with suppress(OSError), socket.socket(socket.AF_UNIX, flags) as sender:
            sender.sendto(state.encode(), address)
