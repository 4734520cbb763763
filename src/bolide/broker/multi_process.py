"""Worker processes of `--workers`: the broker name, ports and store of each.

A worker is a complete broker, the member of a broker group of its own; worker n of a slave follows
worker n of its master. Its store is the directory
`worker-<number>` below `storePathRootDir`. The directory is named by number because the host name,
and with it the broker name, may change.

A start that would silently leave messages unserved is refused: a single broker, or fewer workers
than before, on a root with worker stores; and workers on a root with the store of a single broker.
"""

import re
import socket
from dataclasses import dataclass
from pathlib import Path

from bolide.broker.settings.config import VIP_PORT_DELTA, BrokerConfig
from bolide.errors import ConfigError
from bolide.store.config import StoreConfig

PORT_STEP = 10
"""Distance between the ports of one worker and the next."""

OWN_KEYS = frozenset(
    ("brokerName", "listenPort", "haListenPort", "storePathRootDir", "brokerConfigPath",
     "storePathCommitLog", "readOnlyCommitLogStorePaths")
)  # fmt: skip
"""Keys that cannot be changed on one worker: they are derived from the shared settings."""

_HIGHEST_PORT = 65535
_DIRECTORY = re.compile(r"worker-(0|[1-9][0-9]{0,8})")
_STORE_ENTRIES = (
    "commitlog", "consumequeue", "batchconsumequeue", "checkpoint", "config/topics.json",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Worker:
    """Settings of one worker that differ from the shared settings."""

    number: int
    broker_name: str
    listen_port: int
    """0 selects a free port at each start."""
    ha_listen_port: int
    root: Path
    metrics_port: int | None = None
    """None: the first free one."""

    @property
    def label(self) -> str:
        return self.root.name

    @property
    def served_ports(self) -> tuple[int, ...]:
        if not self.listen_port:
            return ()
        return self.listen_port, self.listen_port + VIP_PORT_DELTA, self.ha_listen_port

    def texts(self) -> dict[str, str]:
        """Settings that override the shared ones."""
        return {
            "brokerName": self.broker_name,
            "listenPort": str(self.listen_port),
            "haListenPort": str(self.ha_listen_port),
            "storePathRootDir": str(self.root),
            # One file per worker: a change at run time applies to one worker only.
            "brokerConfigPath": str(self.root / "config" / "broker.properties"),
        } | self._metrics_texts()

    def _metrics_texts(self) -> dict[str, str]:
        port = self.metrics_port
        return {} if port is None else {"metricsPromExporterPort": str(port)}


def workers_of(broker: BrokerConfig, store: StoreConfig) -> list[Worker]:
    """Derive the workers from the shared settings.

    Raises:
        ConfigError: workers would share a port or a commit log directory, or need a port that is
            out of range.
    """
    if store.commit_log_paths is not None or store.read_only_log_paths:
        raise ConfigError(
            f"workers={broker.workers}: each has its commit log in a directory of its own below"
            " storePathRootDir; leave out storePathCommitLog and readOnlyCommitLogStorePaths"
        )
    workers = [_worker(number, broker, store.root) for number in range(broker.workers)]
    _check_ports(workers)
    return workers


def refuse_unserved_stores(root: Path, workers: int) -> None:
    """Refuse a start that would leave stores unserved; `workers` is 1 for a single broker.

    Raises:
        ConfigError: there are such stores; the message names them and says what to do.
    """
    numbers = _worker_numbers(root)
    if unserved := [number for number in numbers if workers == 1 or number >= workers]:
        names = ", ".join(f"worker-{number}" for number in unserved)
        raise ConfigError(
            f"workers={workers}: no process would serve the messages of {names} in {root}; start"
            f" with --workers {max(numbers[-1] + 1, 2)}, or move the directories away once all"
            " messages are consumed"
        )
    if workers > 1 and any((root / name).exists() for name in _STORE_ENTRIES):
        raise ConfigError(
            f"workers={workers}: no process would serve the messages of the broker that ran in"
            f" {root} without workers; move all of it to {root / 'worker-0'}, the store of the"
            " first worker, or set another storePathRootDir"
        )


def refuse_taken_ports(workers: list[Worker], address: str) -> None:
    """Refuse ports on which another process listens.

    Raises:
        ConfigError: a port is in use; the message names the worker and its port.
    """
    for worker in workers:
        for port in worker.served_ports:
            try:
                _try_to_listen(address, port)
            except OSError as exc:
                raise ConfigError(
                    f"{worker.label} cannot listen on {address or '*'}:{port}: {exc.strerror}; the"
                    f" ports of the next worker are {PORT_STEP} higher: set another listenPort"
                ) from exc


def _worker(number: int, broker: BrokerConfig, root: Path) -> Worker:
    step = number * PORT_STEP if broker.listen_port else 0
    return Worker(
        number,
        f"{broker.broker_name}-{number}",
        broker.listen_port + step,
        broker.ha_listen_port + step,
        root / f"worker-{number}",
        _metrics_port(number, broker),
    )


def _metrics_port(number: int, broker: BrokerConfig) -> int | None:
    if not broker.metrics_port_given:
        return None
    port = broker.metrics_prom_exporter_port
    return port and port + number


def _check_ports(workers: list[Worker]) -> None:
    labels: dict[int, str] = {}
    for worker in workers:
        for port in filter(None, dict.fromkeys((*worker.served_ports, worker.ha_listen_port))):
            if port > _HIGHEST_PORT:
                raise ConfigError(
                    f"workers={len(workers)}: {worker.label} would need port {port}, which is too"
                    f" high; workers are {PORT_STEP} ports apart: set a lower listenPort or"
                    " haListenPort"
                )
            if other := labels.get(port):
                raise ConfigError(f"haListenPort: {other} and {worker.label} would share {port}")
            labels[port] = worker.label


def _worker_numbers(root: Path) -> list[int]:
    if not root.is_dir():
        return []
    names = (_DIRECTORY.fullmatch(path.name) for path in root.iterdir())
    return sorted(int(name[1]) for name in names if name)


def _try_to_listen(address: str, port: int) -> None:
    resolved = socket.getaddrinfo(
        address or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    family, _, _, _, socket_address = resolved[0]
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(socket_address)
        listener.listen()
