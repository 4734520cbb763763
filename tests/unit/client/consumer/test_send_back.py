"""A message sent back: by its broker, or as a copy to the retry topic."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bolide.client.consumer.send_back import SendBack
from bolide.client.instance.instance import ClientInstance
from bolide.client.instance.settings import ClientSettings
from bolide.model.message import StoredMessage
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.compression import decompress
from bolide.protocol.headers.send import SendBackHeader
from bolide.protocol.property_string import decode_properties
from bolide.protocol.refusals import ServerError, ServiceNotAvailable
from bolide.remoting.dispatch import Reply, Request, handles
from tests.support.aio import on_loop
from tests.support.cluster import FakeBroker, FakeNameServer, route_of, serving


class Broker(FakeBroker):
    """Takes messages back, or does not."""

    def __init__(self) -> None:
        super().__init__("broker-a")
        self.taken: list[SendBackHeader] = []
        self.refuses = False

    @handles(SendBackHeader, RequestCode.CONSUMER_SEND_MSG_BACK)
    def take_back(self, request: Request[SendBackHeader]) -> Reply:
        if self.refuses:
            raise ServerError("not found")
        self.taken.append(request.header)
        return Reply()


class Scene:
    def __init__(self, broker: Broker, instance: ClientInstance) -> None:
        self.broker = broker
        self.sender = SendBack(instance, "G", 16)


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    servers, broker = FakeNameServer(), Broker()
    async with serving(servers), serving(broker):
        servers.routes["T"] = servers.routes["%RETRY%G"] = route_of(broker, queues=1)
        instance = await ClientInstance.acquire(ClientSettings.of(name_server=servers.address))
        try:
            yield Scene(broker, instance)
        finally:
            await instance.release()


def message(body: bytes = b"body") -> StoredMessage:
    properties = {"UNIQ_KEY": "ID1", "TAGS": "A", "TRAN_MSG": "true"}
    return StoredMessage(
        "T", body, properties, physical_offset=77, reconsume_times=2, broker_name="broker-a", flag=9
    )


@on_loop
async def test_its_broker_is_asked_with_the_level_and_the_most_tries() -> None:
    async with scene() as it:
        await it.sender.send(message(), delay_level=5)
        (taken,) = it.broker.taken
        assert (taken.offset, taken.group, taken.delay_level) == (77, "G", 5)
        assert (taken.origin_topic, taken.max_reconsume_times) == ("T", 16)


@on_loop
async def test_a_copy_goes_to_the_retry_topic_when_the_broker_refuses() -> None:
    async with scene() as it:
        it.broker.refuses = True
        await it.sender.send(message())
        (header,) = it.broker.sends
        assert (header.topic, header.reconsume_times, header.flag) == ("%RETRY%G", 3, 9)
        assert header.max_reconsume_times == 16
        properties = decode_properties(header.properties)
        assert properties == {
            "UNIQ_KEY": "ID1",
            "TAGS": "A",
            "RETRY_TOPIC": "T",
            "ORIGIN_MESSAGE_ID": "ID1",
            "DELAY": "5",
        }
        assert it.broker.frames[0].body == b"body"


@on_loop
async def test_a_large_copy_is_compressed() -> None:
    async with scene() as it:
        await it.sender.resend(message(b"x" * 5000))
        (header,) = it.broker.sends
        body = it.broker.frames[0].body
        assert len(body) < 100
        assert decompress(body, header.sys_flag) == b"x" * 5000


@on_loop
async def test_when_nothing_takes_it_the_last_reason_is_told() -> None:
    async with scene() as it:
        it.broker.refuses = True

        def refuse(*_: object) -> Reply:
            raise ServiceNotAvailable("disk full")

        it.broker.answer = refuse
        with pytest.raises(ServiceNotAvailable, match="disk full"):
            await it.sender.send(message())
        assert len(it.broker.sends) == 3


@pytest.mark.parametrize("status", ["FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT"])
@on_loop
async def test_a_copy_that_is_stored_is_sent_once_however_safe_it_is(status: str) -> None:
    async with scene() as it:
        it.broker.answer = lambda *_: Reply(code=ResponseCode[status])
        await it.sender.resend(message())
        assert len(it.broker.sends) == 1


@on_loop
async def test_a_broker_that_takes_nothing_back_is_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with scene() as it:
        it.broker.refuses = True
        await it.sender.send(message())
        await it.sender.send(message())
        assert caplog.text.count("back failed") == 1


@on_loop
async def test_a_dead_one_is_over_the_most_tries_and_does_not_wait() -> None:
    async with scene() as it:
        await it.sender.resend(message(), dead=True)
        (header,) = it.broker.sends
        assert header.max_reconsume_times is not None
        assert header.reconsume_times > header.max_reconsume_times
        assert "DELAY" not in decode_properties(header.properties)
