"""Sibling brokers of `--workers`: the name, the ports and the store of each process.

A worker is a whole broker, the master of a group of its own. Its store is `worker-<number>` below
`storePathRootDir`: by number, since the name of a host, and so of its broker, may change.

No start may leave messages unserved without a word. So neither a broker without workers nor fewer
of them start where stores of others lie, nor do workers where there is the store of a broker alone.
"""

import re
import socket
from dataclasses import dataclass
from pathlib import Path

from bolide.broker.settings.config import VIP_PORT_DELTA, BrokerConfig
from bolide.errors import ConfigError
from bolide.store.config import StoreConfig

PORT_STEP = 10
"""From the ports of one worker to those of the next."""

OWN_KEYS = frozenset(
    ("brokerName", "listenPort", "haListenPort", "storePathRootDir", "brokerConfigPath",
     "storePathCommitLog", "readOnlyCommitLogStorePaths")
)  # fmt: skip
"""What cannot be set at one worker: it follows from the settings of the host."""

_HIGHEST_PORT = 65535
_DIRECTORY = re.compile(r"worker-(0|[1-9][0-9]{0,8})")
_OF_A_STORE = ("commitlog", "consumequeue", "checkpoint", "config/topics.json")


@dataclass(frozen=True, slots=True)
class Worker:
    """What is a worker's own; all else is as the host is told."""

    number: int
    broker_name: str
    listen_port: int
    """0: the system chooses, at each start anew."""
    ha_listen_port: int
    root: Path

    @property
    def label(self) -> str:
        return self.root.name

    @property
    def served_ports(self) -> tuple[int, ...]:
        return (self.listen_port, self.listen_port + VIP_PORT_DELTA) if self.listen_port else ()

    def texts(self) -> dict[str, str]:
        """Settings that win over those of the host."""
        return {
            "brokerName": self.broker_name,
            "listenPort": str(self.listen_port),
            "haListenPort": str(self.ha_listen_port),
            "storePathRootDir": str(self.root),
            # A file of its own: what is changed at one worker is not changed at the others.
            "brokerConfigPath": str(self.root / "config" / "broker.properties"),
        }


def workers_of(broker: BrokerConfig, store: StoreConfig) -> list[Worker]:
    """The workers that some settings ask for.

    Raises:
        ConfigError: their ports or the directories of their commit logs would be the same, or there
            are no such ports.
    """
    if store.commit_log_paths is not None or store.read_only_log_paths:
        raise ConfigError(
            f"workers={broker.workers}: each has its commit log in a directory of its own below"
            " storePathRootDir; leave out storePathCommitLog and readOnlyCommitLogStorePaths"
        )
    found = [_worker(number, broker, store.root) for number in range(broker.workers)]
    _check_ports(found)
    return found


def refuse_unserved_stores(root: Path, workers: int) -> None:
    """Look for messages that so many workers, or with 1 a broker alone, would not serve.

    Raises:
        ConfigError: names the directories and says what to do.
    """
    found = _numbers(root)
    if left_out := [number for number in found if workers == 1 or number >= workers]:
        names = ", ".join(f"worker-{number}" for number in left_out)
        raise ConfigError(
            f"workers={workers}: nobody would serve the messages of {names} in {root}; start"
            f" with --workers {max(found[-1] + 1, 2)}, or move them away once all is consumed"
        )
    if workers > 1 and any((root / name).exists() for name in _OF_A_STORE):
        raise ConfigError(
            f"workers={workers}: nobody would serve the messages of the broker that ran in {root}"
            f" without workers; move all of it to {root / 'worker-0'}, which is then the store of"
            " the first, or set another storePathRootDir"
        )


def refuse_taken_ports(workers: list[Worker], address: str) -> None:
    """Look for ports that somebody else listens on.

    Raises:
        ConfigError: names the worker and its port.
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
    )


def _check_ports(workers: list[Worker]) -> None:
    taken: dict[int, str] = {}
    for worker in workers:
        for port in filter(None, (*worker.served_ports, worker.ha_listen_port)):
            if port > _HIGHEST_PORT:
                raise ConfigError(
                    f"workers={len(workers)}: {worker.label} would need port {port}, past the"
                    f" highest; each takes {PORT_STEP}, so set a lower listenPort or haListenPort"
                )
            if other := taken.get(port):
                raise ConfigError(f"haListenPort: {other} and {worker.label} would share {port}")
            taken[port] = worker.label


def _numbers(root: Path) -> list[int]:
    if not root.is_dir():
        return []
    names = (_DIRECTORY.fullmatch(path.name) for path in root.iterdir())
    return sorted(int(name[1]) for name in names if name)


def _try_to_listen(address: str, port: int) -> None:
    found = socket.getaddrinfo(
        address or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    family, _, _, _, place = found[0]
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen()
