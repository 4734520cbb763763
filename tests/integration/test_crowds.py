"""Many clients at once: joining members, idle connections, slow reads."""

import asyncio
import re
import resource
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from bolide.protocol import fastjson
from bolide.protocol.bodies.heartbeat import ConsumerGroup, Heartbeat, Subscription
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame, FrameFlag
from bolide.protocol.headers.clients import UnregisterClientHeader
from bolide.store.errors import NotInMemory
from tests.support.aio import ended, on_loop, until
from tests.support.broker import BrokerClient, broker_in
from tests.support.process_figures import require_proc
from tests.support.wire import RawPeer, request_bytes

NAMED = {"UNIQ_KEY": "1"}


def heartbeat(client_id: str, group: str, *topics: str) -> bytes:
    wanted = [Subscription(topic=topic, sub_version=1) for topic in topics]
    data = ConsumerGroup(group_name=group, subscription_data_set=wanted)
    beat = Heartbeat(client_id=client_id, consumer_data_set=[data])
    return request_bytes(RequestCode.HEART_BEAT, body=fastjson.encode(beat), opaque=1)


def is_notice(frame: Frame) -> bool:
    return frame.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED and not frame.flag & 1


# ---- members of a group


@on_loop
async def test_a_member_is_notified_after_the_reply_to_its_heartbeat(tmp_path: Path) -> None:
    async with broker_in(tmp_path) as broker, await RawPeer.connect(broker.address) as peer:
        for number in range(5):  # each time a new group, whose retry topic must be created
            await peer.send(heartbeat("c", f"g-{number}", "T"))
            reply = await peer.frame()
            assert reply.flag & FrameFlag.RESPONSE, "the notice came before the reply"
            assert broker.parts.topics.find(f"%RETRY%g-{number}") is not None
            notice = await peer.frame()
            assert is_notice(notice)
            assert notice.fields == {"consumerGroup": f"g-{number}"}


@on_loop
async def test_who_leaves_has_a_reply_before_the_others_are_notified(tmp_path: Path) -> None:
    async with (
        broker_in(tmp_path) as broker,
        await RawPeer.connect(broker.address) as peer,
        await RawPeer.connect(broker.address) as leaving,
    ):
        await peer.send(heartbeat("stays", "g", "T"))
        await leaving.send(heartbeat("leaves", "g", "T"))
        await until(lambda: len(broker.parts.clients.consumer_ids("g")) == 2)
        header = UnregisterClientHeader(client_id="leaves", consumer_group="g")
        await leaving.send(
            request_bytes(RequestCode.UNREGISTER_CLIENT, header.to_fields(), opaque=9)
        )
        while (await leaving.frame()).opaque != 9:
            pass
        assert broker.parts.clients.consumer_ids("g") == ["stays"]


@on_loop
async def test_heartbeats_and_farewells_of_one_client_keep_their_order(tmp_path: Path) -> None:
    """Though the heartbeat has to create a topic, and the farewell nothing."""
    async with broker_in(tmp_path) as broker, await RawPeer.connect(broker.address) as peer:
        for number in range(5):
            group = f"g-{number}"
            header = UnregisterClientHeader(client_id="c", consumer_group=group)
            farewell = request_bytes(RequestCode.UNREGISTER_CLIENT, header.to_fields(), opaque=2)
            await peer.send(heartbeat("c", group, "T") + farewell)
            while (await peer.frame()).opaque != 2:
                pass
            assert broker.parts.clients.consumer_ids(group) == []


@on_loop
async def test_members_that_join_together_get_few_notices(tmp_path: Path) -> None:
    """One for each change would be 180,000 for 600 members; a notice is a reason to rebalance."""
    count = 150
    async with broker_in(tmp_path) as broker, AsyncExitStack() as stack:
        peers = [
            await stack.enter_async_context(await RawPeer.connect(broker.address))
            for _ in range(count)
        ]
        begun = time.monotonic()
        for number, peer in enumerate(peers):
            await peer.send(heartbeat(f"c-{number}", "g", "T"))
        await until(lambda: len(broker.parts.clients.consumer_ids("g")) == count)
        seconds = time.monotonic() - begun
        notices = 0

        async def count_notices(peer: RawPeer) -> None:
            nonlocal notices
            while True:
                frame = await peer.frame()
                notices += is_notice(frame)

        readers = [asyncio.create_task(count_notices(peer)) for peer in peers]
        await asyncio.sleep(1.0)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        assert count <= notices <= count * (3 + 10 * seconds)


# ---- descriptors


@pytest.mark.parametrize("hard", [1024, 4096])
@on_loop
async def test_idle_connections_leave_descriptors_for_the_store(tmp_path: Path, hard: int) -> None:
    """With room for more the soft limit is raised; without it, surplus ones wait."""
    require_proc()
    soft, own_hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if own_hard != resource.RLIM_INFINITY and own_hard < 4096:
        pytest.skip("this test needs 4,096 open files: raise `ulimit -n`")
    async with limited_broker(tmp_path, hard) as (process, address):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), own_hard))
        peers: list[RawPeer] = []
        try:
            async with BrokerClient(address) as client:
                await client.send("T", b"before")
                for _ in range(1200):
                    peers.append(await RawPeer.connect(address))  # noqa: PERF401  see finally
                await asyncio.sleep(0.5)
                open_files = len(list(Path(f"/proc/{process.pid}/fd").iterdir()))
                assert (open_files > 1200) == (hard > 1200)
                for number in range(40):  # each topic has files of its own
                    reply = await client.send(f"T-{number}", b"during")
                    assert reply.queue_offset == 0
        finally:
            for peer in peers:
                peer.close()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, own_hard))
    if hard == 1024:
        assert "cannot accept connections: the process may open 1024 files" in log_of(tmp_path)


@asynccontextmanager
async def limited_broker(
    directory: Path, hard: int
) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A broker that begins with 1,024 descriptors and may raise them to `hard`."""
    log_config = directory / "logging.toml"
    log_config.write_text(f'file = "{directory / "broker.log"}"\n', encoding="utf-8")
    command = [
        sys.executable, "-m", "bolide", "broker", "--log-config", str(log_config),
        "bindAddress=127.0.0.1", "listenPort=0", "brokerIP1=127.0.0.1",
        f"storePathRootDir={directory / 'store'}",
    ]  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", f'ulimit -Sn 1024 && ulimit -Hn {hard} && exec "$0" "$@"', *command,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        async with asyncio.timeout(20):
            async for line in process.stdout:
                if found := re.search(rb"The broker\[[^,]*, (\S+)\] boot success", line):
                    yield process, found.group(1).decode()
                    break
            else:
                raise AssertionError(f"the broker ended before it served: {log_of(directory)}")
    finally:
        with suppress(ProcessLookupError):  # it may have ended by itself
            process.terminate()
        await ended(process, within=20, log=lambda: log_of(directory))


def log_of(directory: Path) -> str:
    file = directory / "broker.log"
    return file.read_text(encoding="utf-8") if file.exists() else "(no log)"


# ---- slow reads


@on_loop
async def test_slow_reads_of_clients_hold_up_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        broker_in(tmp_path, message_delay_level="1s 2s") as broker,
        BrokerClient(broker.address) as client,
        AsyncExitStack() as stack,
    ):
        await client.send("Cold", b"slow")
        read, may_go_on, waiting = broker.store.read, threading.Event(), []

        def slow_read(topic: str, *args: Any, may_block: bool = True, **given: Any) -> Any:
            if not may_block:
                raise NotInMemory(topic, 0)
            if topic == "Cold":
                waiting.append(topic)
                may_go_on.wait(30)
            return read(topic, *args, may_block=may_block, **given)

        monkeypatch.setattr(broker.store, "read", slow_read)
        try:
            readers = [
                await stack.enter_async_context(BrokerClient(broker.address)) for _ in range(12)
            ]
            pulls = [asyncio.create_task(reader.pull("Cold")) for reader in readers]
            await until(lambda: len(waiting) >= 6)
            await client.send("T", b"later", properties=NAMED | {"DELAY": "1"})
            await until(lambda: broker.store.max_offset("T", 0) == 1, within=5)
            await client.send("New", b"a topic")  # the NameServers are told
        finally:
            may_go_on.set()
        assert [pulled.bodies for pulled in await asyncio.gather(*pulls)] == [[b"slow"]] * 12
