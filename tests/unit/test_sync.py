import asyncio
import inspect
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest

import bolide
from bolide import admin, sync
from bolide.client.blocking import BlockingClient, BlockingProxy, LoopThread
from bolide.client.errors import RouteNotFound, WrongState
from bolide.client.instance.lifecycle import Startable
from bolide.client.producer.results import SendResult, SendStatus
from bolide.model.message import Message
from tests.support.aio import PATIENCE
from tests.support.cluster import FakeCluster, fake_cluster

MESSAGE = Message("T", b"body")


@contextmanager
def running_cluster() -> Iterator[FakeCluster]:
    """A fake cluster on an event loop of its own."""
    ready: Future[tuple[FakeCluster, asyncio.AbstractEventLoop]] = Future()

    async def serve() -> None:
        async with fake_cluster() as cluster:
            ready.set_result((cluster, asyncio.get_running_loop()))
            await stop.wait()

    stop = asyncio.Event()
    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    cluster, loop = ready.result(PATIENCE)
    try:
        yield cluster
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with running_cluster() as made:
        yield made


@pytest.fixture
def producer(cluster: FakeCluster) -> Iterator[sync.Producer]:
    with sync.Producer("G", name_server=cluster.name_server.address) as made:
        yield made


def test_a_send_blocks_until_it_is_stored(producer: sync.Producer, cluster: FakeCluster) -> None:
    result = producer.send(MESSAGE)
    assert result.status is SendStatus.SEND_OK
    assert len(cluster.sends) == 1


def test_a_list_is_a_batch(producer: sync.Producer) -> None:
    (result,) = producer.send([MESSAGE, MESSAGE])
    assert len(result.message_ids) == 2
    assert len(producer.send_batch([MESSAGE], key=1)) == 1


def test_errors_are_those_of_the_asyncio_client(producer: sync.Producer) -> None:
    with pytest.raises(RouteNotFound, match="Missing"):
        producer.send(Message("Missing", b"1"))
    with pytest.raises(RouteNotFound):
        producer.fetch_publish_queues("Missing")
    assert len(producer.fetch_publish_queues("T")) == 2


def test_an_async_send_gives_a_future_and_calls_back(producer: sync.Producer) -> None:
    called: Future[Future[SendResult]] = Future()
    outcome = producer.send_async(MESSAGE, called.set_result, key=1)
    assert outcome.result(PATIENCE).queue.queue_id == 1
    assert called.result(PATIENCE) is outcome
    failing = producer.send_async(Message("Missing", b"1"))
    assert isinstance(failing.exception(PATIENCE), RouteNotFound)


def test_many_threads_share_a_producer(producer: sync.Producer, cluster: FakeCluster) -> None:
    def send() -> None:
        for _ in range(20):
            producer.send(MESSAGE)

    threads = [threading.Thread(target=send) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(cluster.sends) == 100


def test_it_is_used_between_start_and_close(cluster: FakeCluster) -> None:
    producer = sync.Producer("G", name_server=cluster.name_server.address)
    with pytest.raises(WrongState, match="not started"):
        producer.send(MESSAGE)
    producer.start()
    producer.send_oneway(MESSAGE)
    producer.set_name_servers(cluster.name_server.address)
    assert producer.group == "G"
    assert producer.client_id == producer.client.client_id
    producer.close()
    producer.close()
    with pytest.raises(WrongState, match="closed"):
        producer.send(MESSAGE)


def test_a_blocking_call_on_the_loops_own_thread_is_refused(producer: sync.Producer) -> None:
    async def nested() -> None:
        producer.send(MESSAGE)

    with pytest.raises(WrongState, match="would wait for itself"):
        LoopThread.get().wait(nested())


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_has_a_loop_of_its_own_and_old_clients_say_so(
    producer: sync.Producer, cluster: FakeCluster
) -> None:
    producer.send(MESSAGE)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with pytest.raises(WrongState, match="before a fork"):
                producer.send(MESSAGE)
            with sync.Producer("H", name_server=cluster.name_server.address) as own:
                own.send(MESSAGE)
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    producer.send(MESSAGE)
    assert len(cluster.sends) == 3


def public_methods(kind: type[Any]) -> set[str]:
    return {
        name
        for name, member in inspect.getmembers(kind)
        if not name.startswith("_") and (callable(member) or isinstance(member, property))
    }


def test_the_names_are_those_of_asyncio() -> None:
    assert {*sync.__all__, "__version__"} == set(bolide.__all__)
    for name in sync.__all__:
        assert hasattr(sync, name), name


class Guest(Startable):
    """A client that wants to know how its block was left."""

    left: list[object]

    async def start(self) -> None:
        self.left = []

    async def __aexit__(self, kind: object, exc: object, traceback: object) -> None:
        self.left.append(kind)


def test_the_client_hears_of_an_error_in_the_block() -> None:
    guest = Guest()
    with BlockingClient(guest):
        pass
    assert guest.left == [None]
    with pytest.raises(ZeroDivisionError), BlockingClient(guest):
        raise ZeroDivisionError
    assert guest.left == [ZeroDivisionError]


@pytest.mark.parametrize(
    "name", ["Producer", "PushConsumer", "PullConsumer", "LitePullConsumer", "PullSchedule"]
)
def test_a_front_has_every_method_of_its_namesake(name: str) -> None:
    plain, blocking_client = getattr(bolide, name), getattr(sync, name)
    only_for_instances = {"topics"}
    assert public_methods(plain) - only_for_instances <= public_methods(blocking_client)
    for each in public_methods(blocking_client):
        assert not inspect.iscoroutinefunction(getattr(blocking_client, each)), each


def test_the_administrators_subjects_are_blocking(cluster: FakeCluster) -> None:
    with sync.AdminClient(cluster.name_server.address) as administrator:
        topics = administrator.topics
        assert isinstance(topics, BlockingProxy)
        subject = admin.AdminClient(cluster.name_server.address).topics
        for name in public_methods(type(subject)):
            assert not inspect.iscoroutinefunction(getattr(topics, name)), name
