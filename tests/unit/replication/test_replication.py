import asyncio
import errno
import logging
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest

from bolide.protocol.ha import EpochStart, encode_report
from bolide.replication import replica
from bolide.replication.epochs import Epochs
from bolide.replication.peers import PeerPolicy
from bolide.replication.primary import PrimarySettings
from bolide.store import commit_log
from bolide.store.config import FlushMode
from bolide.store.disk import Disk
from bolide.store.flusher import Flushed
from bolide.store.message_store import MessageStore
from bolide.store.truncation import Truncation, truncate_store
from tests.support.aio import on_loop, until
from tests.support.replicas import Master, following_slave, serving_master, slow_link
from tests.support.store import draft, small_config
from tests.unit.store.test_replica_log import bodies, fill, log_bytes


@contextmanager
def opened(root: Path) -> Iterator[MessageStore]:
    with MessageStore(small_config(root), background=False) as store:
        yield store


def epochs_of(*entries: tuple[int, int]) -> Epochs:
    epochs = Epochs()
    for each in entries:
        epochs.begin(*each)
    return epochs


@pytest.mark.parametrize("mode", FlushMode)
@on_loop
async def test_a_slave_gets_what_was_there_and_what_comes(tmp_path: Path, mode: FlushMode) -> None:
    with opened(tmp_path / "master") as store:
        fill(store, 300)
        async with (
            serving_master(store) as master,
            following_slave(tmp_path / "slave", master.ha_address, mode=mode) as slave,
        ):
            await until(lambda: slave.store.log.written == store.log.written)
            fill(store, 100)
            master.primary.wake()
            await until(lambda: master.primary.positions() == [store.log.written])

            assert log_bytes(slave.store) == log_bytes(store)
            assert bodies(slave.store) == bodies(store)
            assert (b"T", 0) in slave.arrived


@on_loop
async def test_several_slaves_follow_and_one_that_left_goes_on_later(tmp_path: Path) -> None:
    with opened(tmp_path / "master") as store:
        async with serving_master(store) as master:
            async with (
                following_slave(tmp_path / "one", master.ha_address) as one,
                following_slave(tmp_path / "two", master.ha_address) as two,
            ):
                await until(lambda: len(master.primary.slaves) == 2)
                fill(store, 50)
                master.primary.wake()
                await until(lambda: one.store.log.end == two.store.log.end == store.log.end)
            await until(lambda: not master.primary.slaves)
            fill(store, 500)
            async with following_slave(tmp_path / "one", master.ha_address) as one:
                await until(lambda: one.store.log.end == store.log.end)

                assert log_bytes(one.store) == log_bytes(store)


@on_loop
async def test_a_slave_is_sent_old_data_from_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "master") as store:
        fill(store, 1000, size=100)
        recent = store.log.end - 5000
        monkeypatch.setattr(store.log, "is_hot", lambda offset: offset >= recent)
        async with (
            serving_master(store) as master,
            following_slave(tmp_path / "slave", master.ha_address) as slave,
        ):
            await until(lambda: slave.store.log.end == store.log.end)

            assert log_bytes(slave.store) == log_bytes(store)


@pytest.mark.parametrize("is_short", [False, True])
@on_loop
async def test_old_data_that_cannot_be_read_is_reported_until_it_can(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    is_short: bool,
) -> None:
    reads = 0

    def fail(*_: object, **__: object) -> bytearray:
        nonlocal reads
        reads += 1
        if is_short:
            return bytearray()
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with opened(tmp_path / "master") as store:
        fill(store, 100, size=100)
        monkeypatch.setattr(store.log, "is_hot", lambda _: False)
        async with (
            serving_master(store) as master,
            following_slave(tmp_path / "slave", master.ha_address) as slave,
        ):
            with monkeypatch.context() as broken:
                broken.setattr(commit_log, "read_at", fail)
                await until(lambda: reads >= 3)
            reports = [each for each in caplog.messages if "cannot send the log from 0" in each]
            assert len(reports) == 1
            assert ("shorter" if is_short else "Input/output error") in reports[0]
            await until(lambda: slave.store.log.end == store.log.end)


@on_loop
async def test_a_slave_that_retention_has_left_behind_copies_the_log_anew(tmp_path: Path) -> None:
    with opened(tmp_path / "master") as store:
        fill(store, 10, size=100)
        async with serving_master(store) as master:
            async with following_slave(tmp_path / "slave", master.ha_address) as slave:
                await until(lambda: slave.store.log.end == store.log.end)
            fill(store, 300, size=100)
            for _ in range(3):
                store.log.retire(store.log.files[0])
            store.log.remove_retired()
            async with following_slave(tmp_path / "slave", master.ha_address) as slave:
                await until(lambda: slave.store.log.end == store.log.end)

                assert log_bytes(slave.store) == log_bytes(store)


@on_loop
async def test_an_unknown_host_gets_nothing(tmp_path: Path) -> None:
    class Nobody(PeerPolicy):
        def admits(self, host: str) -> bool:
            return False

    with opened(tmp_path / "master") as store:
        fill(store, 10)
        async with serving_master(store, policy=Nobody()) as master:
            reader, writer = await asyncio.open_connection("127.0.0.1", master.primary.port)
            writer.write(bytes(8))

            received = b""
            with suppress(ConnectionError):
                received = await asyncio.wait_for(reader.read(), 10)
            writer.close()
            assert received == b""


@on_loop
async def test_a_silent_slave_is_disconnected(tmp_path: Path) -> None:
    settings = PrimarySettings(silence_limit=0.1, heartbeat_interval=0.05)
    with opened(tmp_path / "master") as store:
        async with serving_master(store, settings=settings) as master:
            reader, writer = await asyncio.open_connection("127.0.0.1", master.primary.port)
            writer.write(bytes(8))
            await until(lambda: master.primary.slaves)

            await until(lambda: not master.primary.slaves)
            await asyncio.wait_for(reader.read(), 10)
            writer.close()


@on_loop
async def test_bursts_are_sent_together_unless_sends_wait_for_the_slave(tmp_path: Path) -> None:
    with opened(tmp_path / "master") as store:
        async with serving_master(store) as master:
            _, writer = await asyncio.open_connection("127.0.0.1", master.primary.port)
            writer.write(bytes(8))
            await until(lambda: master.primary.slaves)
            (slave,) = master.primary.slaves
            for _ in range(2):
                fill(store, 1)
                master.primary.wake()
            assert slave.sent == 0
            await until(lambda: slave.sent == store.log.written)

            master.primary.is_urgent = True
            fill(store, 1)
            master.primary.wake()
            assert slave.sent == store.log.written
            writer.close()


@on_loop
async def test_bytes_that_are_refused_are_not_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The master would count them for sends that wait."""
    reported = [0]
    with opened(tmp_path / "master") as store:
        fill(store, 60)
        async with (
            serving_master(store) as master,
            following_slave(tmp_path / "slave", master.ha_address, log_size=8192) as slave,
        ):
            master.primary.on_report.add(lambda: reported.extend(master.primary.positions()))
            await until(lambda: "mappedFileSizeCommitLog" in caplog.text)
            await until(lambda: not master.primary.slaves)

            assert max(reported) <= slave.store.replica.dispatched


@on_loop
async def test_a_slave_that_has_staged_bytes_flushes_them_before_it_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class SlowDisk(Disk):
        may_sync = threading.Event()

        def sync(self, descriptor: int) -> None:
            self.may_sync.wait()
            super().sync(descriptor)

    disk = SlowDisk()
    disk.may_sync.set()
    with opened(tmp_path / "master") as store:
        fill(store, 10)
        async with (
            serving_master(store) as master,
            following_slave(
                tmp_path / "slave", master.ha_address, mode=FlushMode.SYNC, disk=disk
            ) as slave,
        ):
            await until(lambda: master.primary.positions() == [store.log.written])
            disk.may_sync.clear()
            fill(store, 10)
            master.primary.wake()
            await until(lambda: slave.store.log.end == store.log.end)
            (link,) = master.primary.slaves
            link.abort()
            await until(lambda: not master.primary.slaves)
            await until(lambda: slave.replica.master is not None)
            disk.may_sync.set()

            await until(lambda: master.primary.positions() == [store.log.written])
            assert "the master sent bytes" not in caplog.text


# ---- a master that lost the end of its log, in the plain dialect


def fill_equally(store: MessageStore, word: str, count: int) -> None:
    """Append messages whose records have the same length whatever the word is."""
    for number in range(count):
        store.append(draft("T", f"{word}{number:05}".encode()))


@pytest.mark.parametrize("more", [-1, 0, 1])
@on_loop
async def test_a_slave_with_other_bytes_is_not_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, more: int
) -> None:
    """Whether its log is as long as the master's by chance, shorter or longer."""
    with opened(tmp_path / "slave") as store:
        fill_equally(store, "both", 5)
        fill_equally(store, "lost", 5)
        old = log_bytes(store)
    with opened(tmp_path / "master") as store:
        fill_equally(store, "both", 5)
        shared = store.log.end
        counted = [0]
        async with (
            serving_master(store) as master,
            following_slave(tmp_path / "slave", master.ha_address) as slave,
        ):
            master.primary.on_report.add(lambda: counted.extend(master.primary.positions()))
            fill_equally(store, "next", 5 + more)
            master.primary.wake()
            await until(lambda: "this log and the master's differ" in caplog.text)

            assert max(counted) <= shared
            assert log_bytes(slave.store) == old


@on_loop
async def test_a_slave_does_not_count_while_its_master_has_less(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica, "_PATIENCE", 0.2)
    with opened(tmp_path / "slave") as store:
        fill(store, 10)
        data = log_bytes(store)
    with opened(tmp_path / "master") as store:
        store.replica.begin()
        store.replica.append(0, memoryview(data)[: len(data) // 2])
        store.finish_replication()
        async with (
            serving_master(store, settings=PrimarySettings(heartbeat_interval=0.1)) as master,
            following_slave(tmp_path / "slave", master.ha_address, heartbeat_interval=0.1),
        ):
            await until(lambda: "the master does not send what it has" in caplog.text)
            await until(lambda: not master.primary.slaves)
            await until(lambda: master.primary.slaves)
            assert max(master.primary.positions(), default=0) <= store.log.written
            assert caplog.text.count("cannot replicate from") == 1


@pytest.mark.parametrize(("piece", "every"), [(500, 0.05), (1 << 20, 0.5)])
@on_loop
async def test_a_slow_link_is_no_lost_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, piece: int, every: float
) -> None:
    """Whether bytes come in slowly or late: not within a heartbeat, nor the limit of silence."""
    with opened(tmp_path / "master") as store:
        fill(store, 100, size=100)
        async with (
            serving_master(store) as master,
            following_slave(tmp_path / "slave", master.ha_address) as slave,
        ):
            await until(lambda: slave.store.log.end == store.log.end)
        fill(store, 5, size=100)
        settings = PrimarySettings(silence_limit=0.8, heartbeat_interval=0.05)
        counted = [0]
        async with (
            serving_master(store, settings=settings) as master,
            slow_link(master.ha_address, piece=piece, every=every) as address,
            following_slave(
                tmp_path / "slave", address, heartbeat_interval=0.1, silence_limit=0.8
            ) as slave,
        ):
            master.primary.on_report.add(lambda: counted.extend(master.primary.positions()))
            await until(lambda: master.primary.positions() == [store.log.end])
            assert slave.replica.following == 1  # the first connection lasted
            assert set(counted) <= {0, 1, store.log.end}
        assert "does not send" not in caplog.text
        assert "silent" not in caplog.text


@on_loop
async def test_a_late_handshake_is_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path / "master") as store:
        fill(store, 5)
        async with (
            serving_master(store, epochs=epochs_of((1, 0))) as master,
            slow_link(master.ha_address, piece=1 << 20, every=0.3) as address,
            following_slave(
                tmp_path / "slave", address, epochs=Epochs(), heartbeat_interval=0.1
            ) as slave,
        ):
            await until(lambda: slave.store.log.end == store.log.end)
        assert "no handshake" not in caplog.text


@asynccontextmanager
async def reporting(master: Master, position: int) -> AsyncIterator[asyncio.StreamWriter]:
    """A slave of RocketMQ that has the log up to a position."""
    _, writer = await asyncio.open_connection("127.0.0.1", master.primary.port)
    writer.write(encode_report(position, with_epochs=False))
    yield writer
    writer.close()


@on_loop
async def test_the_first_report_counts_up_to_where_the_master_began(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        fill(store, 5)
        begun = store.log.end
        async with serving_master(store) as master:
            fill(store, 5)
            end = store.log.end
            async with reporting(master, end) as writer:
                await until(lambda: master.primary.positions() == [begun])
                writer.write(encode_report(end, with_epochs=False))
                await until(lambda: master.primary.positions() == [end])


@on_loop
async def test_a_slave_that_was_ahead_is_refused_until_it_begins_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path) as store:
        fill(store, 5)
        begun = store.log.end
        async with serving_master(store) as master:
            for _ in range(2):
                async with reporting(master, begun + 500):
                    await until(lambda: not master.primary._links)
            fill(store, 50)
            async with reporting(master, begun + 500):
                await until(lambda: "copy it anew" in caplog.text)
            assert [each.levelname for each in caplog.records].count("ERROR") == 1
            async with reporting(master, begun):
                await until(lambda: master.primary.slaves)
            await until(lambda: not master.primary.slaves)
            async with reporting(master, begun + 500):
                await until(lambda: master.primary.slaves)


@on_loop
async def test_the_dead_connection_of_a_slave_does_not_count_twice(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        fill(store, 5)
        end = store.log.end
        async with serving_master(store) as master, reporting(master, end) as older:
            await until(lambda: master.primary.positions() == [end])
            async with reporting(master, end):
                await until(lambda: len(master.primary.slaves) == 2)
                assert master.primary.positions() == [end]

                older.write(encode_report(end, with_epochs=False))  # another slave, then
                await until(lambda: master.primary.positions() == [end, end])


# ---- controller mode


@on_loop
async def test_the_event_loop_is_free_while_the_log_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    was_free: list[bool] = []

    def slowly(store: MessageStore, position: int) -> Truncation:
        answered = threading.Event()
        with store.exclusively():
            slave.replica._flushed_on_thread(Flushed(0))
            loop.call_soon_threadsafe(answered.set)
            was_free.append(answered.wait(5))
        return truncate_store(store, position)

    monkeypatch.setattr(replica, "truncate_store", slowly)
    loop = asyncio.get_running_loop()
    with opened(tmp_path / "old") as store:
        fill(store, 60)
    with opened(tmp_path / "new") as store:
        fill(store, 10)
        async with (
            serving_master(store, epochs=epochs_of((2, 0))) as master,
            following_slave(tmp_path / "old", master.ha_address, epochs=epochs_of((1, 0))) as slave,
        ):
            await until(lambda: slave.store.log.end == store.log.end)

            assert was_free == [True]


@on_loop
async def test_a_deposed_master_cuts_what_its_successor_lacks(tmp_path: Path) -> None:
    old = epochs_of((1, 0))
    with opened(tmp_path / "old") as store:
        fill(store, 60)
        shared = store.log.end
        shared_bytes = log_bytes(store)
        fill(store, 9)
    with opened(tmp_path / "new") as store:
        store.replica.begin()
        store.replica.append(0, memoryview(shared_bytes))
        store.replica.dispatch()
        store.finish_replication()
        new = epochs_of((1, 0), (2, shared))
        fill(store, 30)
        async with (
            serving_master(store, epochs=new) as master,
            following_slave(tmp_path / "old", master.ha_address, epochs=old) as slave,
        ):
            await until(lambda: slave.store.log.end == store.log.end)

            assert log_bytes(slave.store) == log_bytes(store)
            assert bodies(slave.store) == bodies(store)
            assert [(each.position, each.records) for each in slave.replica.truncations] == [
                (shared, 9)
            ]
            assert list(old) == [EpochStart(1, 0), EpochStart(2, shared)]
            assert master.primary.acks() == {1: store.log.end}


@on_loop
async def test_a_master_of_an_older_epoch_is_not_followed(tmp_path: Path) -> None:
    with opened(tmp_path / "master") as store:
        fill(store, 5)
        async with (
            serving_master(store, epochs=epochs_of((3, 0))) as master,
            following_slave(
                tmp_path / "slave", master.ha_address, epochs=Epochs(), fence=4
            ) as slave,
        ):
            await asyncio.sleep(0.3)

            assert slave.store.log.end == 0
            assert not master.primary.slaves


@on_loop
async def test_an_empty_slave_forgets_the_epoch_in_which_it_wrote_nothing(tmp_path: Path) -> None:
    """It was elected, and deposed again by a master whose log begins in an older epoch."""
    with opened(tmp_path / "master") as store:
        fill(store, 20)
        async with (
            serving_master(store, epochs=epochs_of((1, 0), (3, store.log.end))) as master,
            following_slave(
                tmp_path / "slave", master.ha_address, epochs=epochs_of((2, 0))
            ) as slave,
        ):
            await until(lambda: slave.store.log.end == store.log.end)

            assert slave.epochs is not None
            assert EpochStart(2, 0) not in slave.epochs


@on_loop
async def test_a_slave_hands_out_only_what_is_confirmed(tmp_path: Path) -> None:
    with opened(tmp_path / "master") as store:
        first = store.append(draft("T", b"first"))
        store.append(draft("T", b"second"))
        store.log.confirmed = first.end
        async with (
            serving_master(store, epochs=epochs_of((1, 0))) as master,
            following_slave(tmp_path / "slave", master.ha_address, epochs=Epochs()) as slave,
        ):
            await until(lambda: slave.store.log.end == store.log.end)
            assert slave.store.max_offset("T", 0) == 1
            store.log.confirmed = store.log.end

            await until(lambda: slave.store.max_offset("T", 0) == 2)


@pytest.mark.parametrize("with_epochs", [False, True])
@on_loop
async def test_a_slave_that_is_turned_away_says_what_to_look_at(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, with_epochs: bool
) -> None:
    caplog.set_level(logging.INFO)

    async def turn_away(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(turn_away, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    epochs = Epochs() if with_epochs else None
    async with server, following_slave(tmp_path / "slave", f"{host}:{port}", epochs=epochs):
        await until(lambda: "cannot replicate" in caplog.text)
        await asyncio.sleep(0.3)  # it goes on trying
    assert "is this host in its haAllowedReplicas?" in caplog.text
    assert "replicating from" not in caplog.text
    assert "Transport" not in caplog.text
