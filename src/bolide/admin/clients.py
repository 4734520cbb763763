"""Connected clients: producers, consumers, and the state a consumer reports on request."""

from collections.abc import Iterable

from bolide.admin.errors import GroupOffline
from bolide.admin.servers import OnFailure, Servers, gather_answers, gather_reachable
from bolide.errors import BolideError
from bolide.protocol.bodies.consumers import (
    Connection,
    ConsumerConnections,
    DirectConsumption,
    ProducerConnections,
    RunningConsumer,
)
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.clients import (
    ConsumeDirectlyHeader,
    ConsumerGroupHeader,
    ProducerGroupHeader,
    RunningInfoHeader,
)
from bolide.protocol.refusals import ConsumerNotOnline, ServerError
from bolide.remoting.errors import RemotingError

_RELAY_TIMEOUT = 15.0
"""Seconds for requests that a broker relays to a client, which has ten seconds to answer."""


class Clients:
    """The connected clients of a cluster."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    async def consumers(
        self, group: str, address: str | None = None, *, on_failure: OnFailure | None = None
    ) -> ConsumerConnections:
        """The consumers of a group, on all its brokers or on one; raises GroupOffline.

        Brokers that cannot be reached are left to `on_failure`, if it is given.
        """
        if address is None:
            addresses = [*(await self._servers.addresses_of_group(group)).values()]
        else:
            addresses = [address]
        answers = await gather_reachable(
            addresses, lambda at: self._find_consumers(at, group), on_failure
        )
        found = _merged(answers.values())
        if found is None:
            raise GroupOffline(group, addresses)
        return found

    async def consumers_and_failures(
        self, group: str
    ) -> tuple[ConsumerConnections | None, list[BolideError]]:
        """The consumers that the brokers tell of that do, and the failures of the others.

        Raises:
            BolideError: the brokers of the group are not known.
        """
        addresses = (await self._servers.addresses_of_group(group)).values()
        answers, failures = await gather_answers(
            addresses, lambda at: self._find_consumers(at, group)
        )
        return _merged(answers.values()), failures

    async def _find_consumers(self, address: str, group: str) -> ConsumerConnections | None:
        code, header = RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerGroupHeader(group)
        try:
            found = await self._servers.fetch(address, code, ConsumerConnections, header)
        except ConsumerNotOnline:
            return None
        return found if found.connection_set else None

    async def producers(
        self, group: str, topic: str, *, on_failure: OnFailure | None = None
    ) -> ProducerConnections:
        """The producers of a group, on the brokers of a topic; raises GroupOffline.

        Brokers that cannot be reached are left to `on_failure`, if it is given.
        """
        addresses = [*(await self._servers.addresses_of(topic)).values()]
        answers = await gather_reachable(
            addresses, lambda at: self._producers_at(at, group), on_failure
        )
        found = [each for part in answers.values() for each in part]
        if not found:
            raise GroupOffline(group, addresses)
        return ProducerConnections(connection_set=_distinct(found))

    async def _producers_at(self, address: str, group: str) -> list[Connection]:
        code, header = RequestCode.GET_PRODUCER_CONNECTION_LIST, ProducerGroupHeader(group)
        try:
            found = await self._servers.fetch(address, code, ProducerConnections, header)
        except ServerError as exc:
            if "not exist" not in exc.remark:  # the remark for a group without producers
                raise
            return []
        return found.connection_set

    async def running(
        self, group: str, client_id: str, *, stacks: bool = False, address: str | None = None
    ) -> RunningConsumer:
        """The state a consumer reports: queues, subscriptions, rates, and thread stacks if asked.

        Args:
            group: the group of the consumer.
            client_id: the id of the consumer.
            stacks: whether to report thread stacks.
            address: the broker that relays the question; by default each of the group in turn.

        Raises:
            ServerError: the client is connected to none of the group's brokers.
            ConsumerTimedOut: the client does not answer.
        """
        if address is None:
            addresses = [*(await self._servers.addresses_of_group(group)).values()]
        else:
            addresses = [address]
        header = RunningInfoHeader(consumer_group=group, client_id=client_id, jstack_enable=stacks)
        code = RequestCode.GET_CONSUMER_RUNNING_INFO
        failures: list[BolideError] = []
        for each in addresses:
            try:
                return await self._servers.fetch(
                    each, code, RunningConsumer, header, within=_RELAY_TIMEOUT
                )
            except RemotingError as exc:  # whose clients are not known
                failures.insert(0, exc)
            except ServerError as exc:
                if "not online" not in exc.remark:
                    raise
                failures.append(exc)
        raise failures[0]

    async def consume_directly(
        self, group: str, client_id: str, offset_message_id: str, address: str
    ) -> DirectConsumption:
        """Make one consumer handle a stored message now; committed offsets do not change.

        `address` is the address of the broker that stores the message.
        """
        header = ConsumeDirectlyHeader(
            consumer_group=group, client_id=client_id, msg_id=offset_message_id
        )
        code = RequestCode.CONSUME_MESSAGE_DIRECTLY
        return await self._servers.fetch(
            address, code, DirectConsumption, header, within=_RELAY_TIMEOUT
        )


def _merged(parts: Iterable[ConsumerConnections | None]) -> ConsumerConnections | None:
    found = [part for part in parts if part is not None]
    if not found:
        return None
    first = found[0]
    first.connection_set = _distinct([each for part in found for each in part.connection_set])
    return first


def _distinct(connections: list[Connection]) -> list[Connection]:
    """Each client once, sorted by id: a client is connected to every broker it uses."""
    found = {each.client_id or "": each for each in reversed(connections)}
    return [found[client_id] for client_id in sorted(found)]
