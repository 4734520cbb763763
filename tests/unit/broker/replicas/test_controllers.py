"""Calls to controllers: who leads, also while the machine of one of them is off."""

import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any

import pytest

from bolide.broker.replicas.controllers import (
    Controllers,
    DifferentQuorums,
    NoLeader,
    Quorum,
)
from bolide.protocol.codes import RequestCode
from bolide.protocol.header import NoHeader
from bolide.protocol.headers.controller import (
    BrokerHeartbeatReply,
    MetadataReply,
    NextBrokerIdHeader,
    NextBrokerIdReply,
)
from bolide.protocol.headers.namesrv import BrokerHeartbeatHeader
from bolide.remoting.client import RemotingClient
from bolide.remoting.dispatch import Dispatcher, Reply, Request, handles
from bolide.remoting.server import RemotingServer, ServerConfig
from tests.support.aio import on_loop

HEADER = NextBrokerIdHeader("c", "broker-a")


class FakeController:
    """Says who leads, and answers as the leader."""

    def __init__(self) -> None:
        self.leader = ""
        self.is_leader = False
        self.quorum: str | None = None
        self.group, self.peers = "g", ""
        self.calls = 0

    @handles(NoHeader, RequestCode.CONTROLLER_GET_METADATA_INFO)
    def metadata(self, request: Request[NoHeader]) -> Reply:
        values: dict[str, Any] = {
            "group": self.group,
            "controller_leader_id": "n0",
            "controller_leader_address": self.leader,
            "is_leader": self.is_leader,
            "peers": self.peers,
            "quorum_id": self.quorum,
        }
        return Reply(header=MetadataReply(**values))

    @handles(NextBrokerIdHeader, RequestCode.CONTROLLER_GET_NEXT_BROKER_ID)
    def next_id(self, request: Request[NextBrokerIdHeader]) -> Reply:
        self.calls += 1
        return Reply(header=NextBrokerIdReply("c", "broker-a", 7))

    @handles(BrokerHeartbeatHeader, RequestCode.BROKER_HEARTBEAT)
    def heartbeat(self, request: Request[BrokerHeartbeatHeader]) -> Reply:
        reply = BrokerHeartbeatReply(lease_millis=1800, master_epoch=9, quorum_id=self.quorum)
        return Reply(header=reply)


@asynccontextmanager
async def served(controller: FakeController) -> AsyncIterator[str]:
    config = ServerConfig(host="127.0.0.1", port=0)
    async with RemotingServer(config, Dispatcher(controller)) as server:
        yield server.address


@contextmanager
def powered_off() -> Iterator[str]:
    """An address at which connections are not answered: its queue of connections is full."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        try:
            for each in waiting:
                each.setblocking(False)
                each.connect_ex(listening.getsockname())
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            for each in waiting:
                each.close()


@on_loop
async def test_a_controller_whose_machine_is_off_holds_up_no_call() -> None:
    leader = FakeController()
    async with served(leader) as address, RemotingClient() as client:
        leader.leader, leader.is_leader = address, True
        with powered_off() as dead:
            for addresses in ((address, dead), (dead, address)):
                controllers = Controllers(client, lambda found=addresses: found)  # type: ignore[misc]
                code = RequestCode.CONTROLLER_GET_NEXT_BROKER_ID
                await controllers.call(code, HEADER, within=1.0)
    assert leader.calls == 2


@on_loop
async def test_a_follower_names_the_leader() -> None:
    leader, follower = FakeController(), FakeController()
    async with served(leader) as address, served(follower) as other, RemotingClient() as client:
        follower.leader = address
        controllers = Controllers(client, lambda: [other])
        await controllers.call(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, HEADER)
    assert leader.calls == 1


@on_loop
async def test_without_any_controller_a_call_says_so_in_time() -> None:
    with powered_off() as dead:
        async with RemotingClient() as client:
            controllers = Controllers(client, lambda: [dead])
            with pytest.raises(NoLeader, match="leads"):
                code = RequestCode.CONTROLLER_GET_NEXT_BROKER_ID
                await controllers.call(code, HEADER, within=0.8)


# ---- controllers of one quorum, and of several


class Bench:
    """Controllers that say what a test wants, and a broker that asks them."""

    def __init__(self, stack: AsyncExitStack, client: RemotingClient) -> None:
        self._stack = stack
        self.addresses: list[str] = []
        self.controllers = Controllers(client, lambda: self.addresses)

    async def add(self, quorum: str | None, *, leads: bool = False, peers: str = "") -> str:
        fake = FakeController()
        fake.quorum, fake.is_leader, fake.peers = quorum, leads, peers
        address = await self._stack.enter_async_context(served(fake))
        self.addresses.append(address)
        return address

    async def join(self) -> None:
        await self.controllers.survey(is_joining=True)

    async def look(self) -> None:
        await self.controllers.survey(is_joining=False)


@asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    async with AsyncExitStack() as stack, RemotingClient() as client:
        yield Bench(stack, client)


@on_loop
async def test_controllers_of_one_quorum_may_be_written_in_any_way() -> None:
    async with bench() as asked:
        for number in range(3):  # behind NAT, and by another name each
            peers = "n0:ctl.test:1;n1:10.0.0.2:1;n2:[fd00::1]:1;"
            await asked.add("one", leads=number == 1, peers=peers)
        await asked.join()
        await asked.look()
        assert asked.controllers.quorum == "one"
        asked.addresses.append(asked.addresses[0].replace("127.0.0.1", "localhost"))
        await asked.join()


@on_loop
async def test_a_broker_joins_no_controllers_of_different_quorums() -> None:
    async with bench() as asked:
        # Each NameServer runs a single controller under the same default address.
        one = await asked.add("one", leads=True, peers="n0:127.0.0.1:9878;")
        other = await asked.add("other", leads=True, peers="n0:127.0.0.1:9878;")
        with pytest.raises(DifferentQuorums, match="same controllerDLegerPeers") as refused:
            await asked.join()
        text = str(refused.value)
        assert all(each in text for each in (one, other, "quorum one", "quorum other"))


@on_loop
async def test_a_member_notices_another_quorum_that_appears_and_keeps_it_in_mind() -> None:
    async with bench() as asked:
        await asked.add("one", leads=True, peers="n0:a:1;n1:b:1")
        async with served(FakeController()) as late:
            asked.addresses.append(late)
        await asked.join()  # that one does not answer: no contradiction
        asked.addresses.pop()
        await asked.look()
        found = FakeController()
        found.quorum, found.peers = "other", "n0:b:1"
        async with served(found) as late:
            asked.addresses.append(late)
            with pytest.raises(DifferentQuorums, match="each of them would"):
                await asked.look()
        with pytest.raises(DifferentQuorums):  # it is gone, but may lead for others
            await asked.look()
        asked.addresses.pop()
        await asked.look()


@on_loop
async def test_a_member_does_not_follow_its_controllers_into_another_quorum() -> None:
    async with bench() as asked:
        fake = FakeController()
        fake.quorum, fake.is_leader = "one", True
        async with served(fake) as address:
            asked.addresses = [address]
            await asked.join()
            header = BrokerHeartbeatHeader("c", "a:1", "broker-a", 1)
            assert await asked.controllers.heartbeat(address, header) is not None
            fake.quorum = "other"  # it lost its files
            with pytest.raises(DifferentQuorums, match=r"joined quorum one.*restart this broker"):
                await asked.look()
            assert await asked.controllers.heartbeat(address, header) is None
            asked.controllers.leader = None
            code = RequestCode.CONTROLLER_GET_NEXT_BROKER_ID
            with pytest.raises(NoLeader):
                await asked.controllers.call(code, HEADER, within=0.3)
            await asked.join()  # restarted
            assert asked.controllers.quorum == "other"


@on_loop
async def test_a_broker_that_joins_waits_for_a_quorum_that_had_a_leader() -> None:
    async with bench() as asked:
        await asked.add("", peers="n0:a:1;n1:b:1")
        with pytest.raises(NoLeader, match="leads"):
            await asked.join()
        await asked.add("one", leads=True, peers="n0:a:1;n1:b:1")
        await asked.join()
        assert asked.controllers.quorum == "one"


@on_loop
async def test_an_address_that_can_be_no_controller_of_the_quorum_is_refused() -> None:
    async with bench() as asked:
        await asked.add("one", leads=True, peers="n0:127.0.0.1:9878;")
        with powered_off() as dead:
            asked.addresses.append(dead)
            with pytest.raises(DifferentQuorums, match=f"{dead}, which does not answer.*remove"):
                await asked.join()
            await asked.look()  # who has joined knows the quorum


@pytest.mark.parametrize("peers", ["n0:{};n1:{}", "{};{}", "n0:a.test:1;n1:b.test:1"])
@on_loop
async def test_a_controller_that_does_not_answer_may_be_one_of_the_quorum(peers: str) -> None:
    async with bench() as asked:
        fake = FakeController()
        async with served(fake) as address:
            with powered_off() as dead:
                asked.addresses = [address, dead]
                fake.quorum, fake.peers = "one", peers.format(address, dead)
                await asked.join()


@on_loop
async def test_controllers_of_rocketmq_tell_their_group_and_peers() -> None:
    async with bench() as asked:
        peers = "n0:10.0.0.1:9877;n1:10.0.0.2:9877;"
        await asked.add(None, leads=True, peers=peers)
        await asked.add(None, peers="n1:10.0.0.2:9877;n0:10.0.0.1:9877;")
        await asked.join()
        await asked.look()
        assert asked.controllers.quorum == ""
        await asked.add(None, leads=True, peers="n0:10.0.0.3:9877;")
        with pytest.raises(DifferentQuorums, match=r"10\.0\.0\.3"):
            await asked.look()


@on_loop
async def test_two_controllers_of_rocketmq_that_lead_are_of_different_quorums() -> None:
    async with bench() as asked:
        await asked.add(None, leads=True, peers="n0:127.0.0.1:9877;")
        await asked.join()
        await asked.add(None, leads=True, peers="n0:127.0.0.1:9877;")
        await asked.look()  # one of them may have been replaced and not know it yet
        with pytest.raises(DifferentQuorums):
            await asked.look()
        with pytest.raises(DifferentQuorums):
            await asked.join()
        asked.addresses[1] = asked.addresses[0].replace("127.0.0.1", "localhost")
        await asked.join()
        await asked.look()


def test_what_says_too_little_contradicts_nothing() -> None:
    java = Quorum(None, "g", frozenset(["n0:a:1"]))
    for other in (
        Quorum("", "h", frozenset(["n0:b:1"])),
        Quorum(None, "h", frozenset()),
        Quorum("one", "g", frozenset(["n0:a:1"])),  # an early release of ours beside it
    ):
        assert not java.contradicts(other) and not other.contradicts(java)
    assert java.contradicts(Quorum("one", "g", frozenset(["n0:b:1"])))
