"""Faults that are injected into a real broker take effect, and end."""

import time
from pathlib import Path

import pytest

from bolide.admin import AdminClient
from bolide.chaos.faults import Faults
from bolide.chaos.target import LocalTarget
from bolide.client.producer.producer import Producer
from bolide.client.producer.results import SendStatus
from bolide.cluster.plan import ClusterOptions
from bolide.errors import BolideError
from bolide.model.message import Message
from tests.support.aio import on_loop
from tests.support.ports import free_port

BROKER = "broker-a-0"


def target_in(directory: Path) -> LocalTarget:
    settings = {"flushDiskType": "SYNC_FLUSH", "mappedFileSizeCommitLog": str(256 * 1024)}
    port = free_port((1033, 1035, 1036))
    return LocalTarget(
        ClusterOptions(data=directory, network="plain", base_port=port, settings=settings)
    )


async def try_to_send(producer: Producer, size: int = 10) -> bool:
    try:
        sent = await producer.send(Message("Orders", b"x" * size), timeout=1.0)
    except BolideError:
        return False
    return sent.status is SendStatus.SEND_OK


async def until_sent(producer: Producer, *, works: bool) -> None:
    """Faults reach the process within some milliseconds, and end within a second or two."""
    deadline = time.monotonic() + 20
    while await try_to_send(producer, 50_000) is not works:
        assert time.monotonic() < deadline


@pytest.mark.parametrize("faults", [Faults(is_disk_full=True), Faults(is_sync_failing=True)])
def test_a_disk_that_fails_refuses_messages_until_it_works(faults: Faults, tmp_path: Path) -> None:
    @on_loop
    async def send_all_the_time() -> None:
        target = target_in(tmp_path)
        async with (
            target.cluster,
            Producer("tests", name_server=target.name_servers, retries=0) as producer,
        ):
            assert await try_to_send(producer)

            await target.inject(BROKER, faults)
            await until_sent(producer, works=False)

            await target.inject(BROKER, Faults())
            await until_sent(producer, works=True)

    send_all_the_time()


@on_loop
async def test_the_clock_of_a_broker_is_shifted(tmp_path: Path) -> None:
    target = target_in(tmp_path)
    async with target.cluster, AdminClient(target.name_servers) as admin:
        assert await target.masters() == {"broker-a": BROKER}
        assert target.group_of(BROKER) == "broker-a"
        address = target.address_of(BROKER)
        boot = int((await admin.brokers.runtime(address))["bootTimestamp"])
        assert abs(boot - time.time() * 1000) < 60_000

        await target.inject(BROKER, Faults(clock_shift=3600.0))
        await target.stop(BROKER)
        await target.start(BROKER)

        shifted = int((await admin.brokers.runtime(address))["bootTimestamp"])
        assert 3_500_000 < shifted - boot < 3_700_000
