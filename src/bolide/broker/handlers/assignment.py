"""Queues for consumers that leave the sharing out to the broker (`QueryAssignmentProcessor`)."""

import logging

from bolide.broker.assignments import Assignments
from bolide.broker.groups import GroupTable
from bolide.broker.json_body import MAX_BODY, read_json
from bolide.broker.topics import TopicTable
from bolide.model.names import is_retry_topic
from bolide.protocol import fastjson
from bolide.protocol.bodies import pop as bodies
from bolide.protocol.bodies.pop import AssignmentQuery, RequestModeSetting
from bolide.protocol.codes import RequestCode
from bolide.protocol.header import NoHeader
from bolide.protocol.refusals import NoPermission
from bolide.remoting.dispatch import Reply, Request, handles

log = logging.getLogger(__name__)


class AssignmentHandlers:
    """Says which queues are whose, and whether they are pulled or popped."""

    def __init__(self, *, assignments: Assignments, topics: TopicTable, groups: GroupTable) -> None:
        self._assignments = assignments
        self._topics = topics
        self._groups = groups

    @handles(NoHeader, RequestCode.QUERY_ASSIGNMENT, max_body=MAX_BODY)
    async def query(self, request: Request[NoHeader]) -> Reply:
        asked = await read_json(request, AssignmentQuery)
        found = await self._assignments.query(asked)
        return Reply(body=fastjson.encode(bodies.Assignments(message_queue_assignments=found)))

    @handles(NoHeader, RequestCode.SET_MESSAGE_REQUEST_MODE, max_body=MAX_BODY)
    async def set_mode(self, request: Request[NoHeader]) -> Reply:
        wanted = await read_json(request, RequestModeSetting)
        if is_retry_topic(wanted.topic):
            raise NoPermission(
                f"retry topic is not allowed to set mode: {wanted.topic} is pulled;"
                " set the mode of the topic that the retries are of"
            )
        self._topics.require(wanted.topic)
        self._groups.require(wanted.consumer_group)
        log.info("%s sets %s", request.connection.peer, wanted)
        await self._assignments.modes.set(wanted)
        return Reply()

    @handles(NoHeader, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
    def modes(self, request: Request[NoHeader]) -> Reply:
        return Reply(body=fastjson.encode(self._assignments.modes.table))
