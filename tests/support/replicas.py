"""A master and its slaves without brokers: stores joined by replication over real sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bolide.replication.epochs import Epochs
from bolide.replication.peers import PeerPolicy
from bolide.replication.primary import Primary, PrimarySettings
from bolide.replication.replica import Replica, ReplicaSettings
from bolide.store.config import FlushMode
from bolide.store.disk import Disk
from bolide.store.message_store import MessageStore
from tests.support.store import small_config

LOOPBACK = "127.0.0.1"


@dataclass(slots=True)
class Master:
    store: MessageStore
    primary: Primary

    @property
    def ha_address(self) -> str:
        return f"{LOOPBACK}:{self.primary.port}"


@asynccontextmanager
async def serving_master(
    store: MessageStore,
    *,
    epochs: Epochs | None = None,
    settings: PrimarySettings | None = None,
    policy: PeerPolicy | None = None,
) -> AsyncIterator[Master]:
    """Serve the log of an open store to slaves."""
    chosen = settings or PrimarySettings(transfer_size=1000)
    primary = Primary(
        store.log,
        lambda: chosen,
        address=(LOOPBACK, 0),
        policy=policy or PeerPolicy(),
        epochs=epochs,
        confirmed=lambda: store.log.readable,
    )
    async with primary:
        yield Master(store, primary)


@dataclass(slots=True)
class Slave:
    store: MessageStore
    replica: Replica
    epochs: Epochs | None = None
    arrived: list[tuple[bytes, int]] = field(default_factory=list)


@asynccontextmanager
async def following_slave(
    root: Path,
    master: str | None,
    *,
    epochs: Epochs | None = None,
    mode: FlushMode = FlushMode.ASYNC,
    broker_id: int = 1,
    fence: int = -1,
    disk: Disk | None = None,
    log_size: int = 4096,
    heartbeat_interval: float = 5.0,
    silence_limit: float = 20.0,
) -> AsyncIterator[Slave]:
    """Open a store and follow a master with it."""
    config = small_config(root, mode=mode, log_size=log_size)
    with MessageStore(config, disk=disk, background=mode is FlushMode.SYNC) as store:
        store.replica.begin()
        replica = Replica(
            store,
            lambda: ReplicaSettings(
                broker_id=broker_id,
                heartbeat_interval=heartbeat_interval,
                silence_limit=silence_limit,
            ),
            master=lambda: master,
            epochs=epochs,
            fence=lambda: fence,
        )
        slave = Slave(store, replica, epochs)
        replica.on_arrived.add(
            lambda queues: slave.arrived.extend((each.topic, each.queue_id) for each in queues)
        )
        task = asyncio.create_task(replica.run())
        try:
            yield slave
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def slow_link(address: str, *, piece: int, every: float) -> AsyncIterator[str]:
    """Serve as a way to a master on which its bytes arrive in pieces, each after a pause."""
    host, _, port = address.rpartition(":")
    tasks: set[asyncio.Task[None]] = set()

    async def forward(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, size: int, pause: float
    ) -> None:
        try:
            while data := await reader.read(size):
                await asyncio.sleep(pause)
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_master, to_master = await asyncio.open_connection(host, int(port))
        for each in (
            forward(from_master, writer, piece, every),
            forward(reader, to_master, 1 << 16, 0.0),
        ):
            task = asyncio.create_task(each)
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, LOOPBACK, 0)
    try:
        yield f"{LOOPBACK}:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
