"""Locks at brokers, and the connections on which they were granted."""

from bolide.client.consumer.group.queue_locks import QueueLocks
from bolide.client.instance.instance import ClientInstance
from bolide.client.instance.settings import ClientSettings
from bolide.model.message_queue import MessageQueue
from bolide.protocol import fastjson
from bolide.protocol.bodies.locks import LockReply, LockRequest
from bolide.protocol.codes import RequestCode
from bolide.protocol.header import NoHeader
from bolide.remoting.connection import Connection
from bolide.remoting.dispatch import Reply, Request, handles
from tests.support.aio import on_loop, until
from tests.support.cluster import FakeBroker, FakeNameServer, route_of, serving

QUEUE = MessageQueue("T", "broker-a", 0)


class Broker(FakeBroker):
    """Grants the locks of first queues only."""

    connection: Connection

    @handles(NoHeader, RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ)
    def lock(self, request: Request[NoHeader]) -> Reply:
        self.connection = request.connection
        wanted = fastjson.decode(request.body, LockRequest).mq_set
        return Reply(body=fastjson.encode(LockReply(locked=[q for q in wanted if not q.queue_id])))


@on_loop
async def test_a_lock_is_held_as_long_as_the_connection_it_was_granted_on() -> None:
    servers, broker = FakeNameServer(), Broker("broker-a")
    async with serving(servers), serving(broker):
        servers.routes["T"] = route_of(broker)
        instance = await ClientInstance.acquire(ClientSettings.of(name_server=servers.address))
        locks, refused = QueueLocks(instance, "G"), MessageQueue("T", "broker-a", 1)
        assert not locks.holds(QUEUE)
        assert await locks.lock([QUEUE, refused]) == {QUEUE: True, refused: False}
        assert locks.holds(QUEUE)
        assert not locks.holds(refused)
        broker.connection.abort()
        await until(lambda: not locks.holds(QUEUE))
        await instance.remoting.connect(broker.address)
        assert not locks.holds(QUEUE)
        await locks.lock([QUEUE])
        assert locks.holds(QUEUE)
        await locks.unlock([QUEUE])
        assert not locks.holds(QUEUE)
        await instance.release()
