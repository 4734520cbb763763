"""What consumers tell about themselves: the `rocketmq_client_` names of rocketmq-exporter.

Consumers are asked as `consumerStatus` asks them, at most once a minute and only while somebody
reads the metrics; what they answered is shown until the next time.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from bolide.broker.components import Parts
from bolide.broker.metadata.clients import ConsumerGroup, Member
from bolide.errors import BolideError
from bolide.metrics.families import Family, Kind
from bolide.protocol import fastjson
from bolide.protocol.bodies.consumers import RunningConsumer, TopicConsumption
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.frame import Frame
from bolide.protocol.headers.clients import RunningInfoHeader

log = logging.getLogger(__name__)

_PERIOD = 60.0
_TIMEOUT = 3.0
_AT_ONCE = 16
MAX_CONSUMERS: Final = 500
"""Consumers that are asked; those of further groups are left out."""
_MAX_ANSWER = 1024 * 1024

_LABELS = ("clientAddr", "clientId", "group", "topic")
_NAMES: tuple[tuple[str, str, Callable[[TopicConsumption], float]], ...] = (
    ("consume_fail_msg_count", "Failed messages, last hour.", lambda of: of.consume_failed_msgs),
    ("consume_fail_msg_tps", "Failed messages a second.", lambda of: of.consume_failed_tps),
    ("consume_ok_msg_tps", "Consumed messages a second.", lambda of: of.consume_ok_tps),
    ("consume_rt", "Milliseconds that a message takes.", lambda of: of.consume_rt),
    ("consumer_pull_rt", "Milliseconds that a pull takes.", lambda of: of.pull_rt),
    ("consumer_pull_tps", "Messages pulled a second.", lambda of: of.pull_tps),
)


class _Figures(NamedTuple):
    address: str
    client_id: str
    group: str
    topic: str
    found: TopicConsumption


class ClientFigures:
    """The last answers of consumers; belongs to one event loop, `families` to any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = 0.0
        self._found: list[_Figures] = []

    def ask_soon(self, parts: Parts) -> None:
        """Ask all consumers in the background, unless that was done lately."""
        if self._clock() >= self._next:
            self._next = self._clock() + _PERIOD
            parts.background.start(self._ask(parts), "broker-client-figures")

    def families(self) -> Iterator[Family]:
        found = self._found
        for name, text, value in _NAMES:
            series = [(each[:4], value(each.found)) for each in found]
            yield Family(f"rocketmq_client_{name}", Kind.GAUGE, text, series, labels=_LABELS)

    async def _ask(self, parts: Parts) -> None:
        groups = parts.clients.consumer_groups()
        members = ((group, each) for group in groups for each in group.members)
        asked = islice(members, MAX_CONSUMERS)
        turn = asyncio.Semaphore(_AT_ONCE)
        answers = await asyncio.gather(*(_ask(turn, *each) for each in asked))
        self._found = [
            figures for answer in answers for figures in answer if figures.topic in parts.topics
        ]


async def _ask(turn: asyncio.Semaphore, group: ConsumerGroup, member: Member) -> list[_Figures]:
    header = RunningInfoHeader(consumer_group=group.name, client_id=member.client_id)
    code = RequestCode.GET_CONSUMER_RUNNING_INFO
    async with turn:
        try:
            frame = Frame(code=code, fields=header.to_fields())
            answer = await member.connection.call(frame, _TIMEOUT)
            if answer.code != ResponseCode.SUCCESS or len(answer.body) > _MAX_ANSWER:
                return []
            running = fastjson.decode(answer.body, RunningConsumer)
        except (BolideError, ValueError) as exc:  # it leaves, is old, or does not answer in time
            log.debug("consumer %s told no figures: %s", member.client_id, exc)
            return []
    return [
        _Figures(member.connection.peer, member.client_id, group.name, topic, found)
        for topic, found in running.status_table.items()
    ]
