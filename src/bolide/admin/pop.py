"""How consumer groups get their messages: by pulling or by popping."""

from bolide.admin.servers import Servers
from bolide.protocol import fastjson
from bolide.protocol.bodies.pop import RequestMode, RequestModeSetting, RequestModeTable
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.pop import PollingHeader, PollingReply


class Pop:
    """The consume modes of a cluster's groups; brokers of 4.9 have none of this."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    async def set_mode(
        self, address: str, topic: str, group: str, mode: RequestMode, share_with: int = 0
    ) -> None:
        """Have consumers that ask one broker for their queues pull or pop.

        Args:
            address: of the broker; tell every master of a cluster the same.
            topic: of which the messages are.
            group: whose consumers; those that share queues out themselves go on pulling.
            mode: how.
            share_with: with how many members each one shares its queues when popping; 0 is all.

        Raises:
            TopicNotFound: the broker has no such topic.
            GroupNotFound: nor such a group, and does not create it.
            NoPermission: it is a retry topic.
        """
        setting = RequestModeSetting(
            topic=topic, consumer_group=group, mode=mode, pop_share_queue_num=share_with
        )
        code = RequestCode.SET_MESSAGE_REQUEST_MODE
        await self._servers.ask(address, code, body=fastjson.encode(setting))

    async def modes(self, address: str) -> list[RequestModeSetting]:
        """What was set at one broker; groups that are not there have its default."""
        code = RequestCode.GET_ALL_MESSAGE_REQUEST_MODE
        table = await self._servers.fetch(address, code, RequestModeTable)
        groups = table.message_request_mode_map.values()
        return [setting for by_group in groups for setting in by_group.values()]

    async def waiting(self, address: str, group: str, topic: str, queue_id: int = -1) -> int:
        """How many pops wait at one broker for messages of a queue; -1 is all queues."""
        header = PollingHeader(consumer_group=group, topic=topic, queue_id=queue_id)
        reply = await self._servers.ask(address, RequestCode.POLLING_INFO, header)
        return PollingReply.from_fields(reply.fields).polling_num
