"""POP against a model: pops, acknowledgements, messages given back, crashes and restarts.

The laws, by a clock that only the test moves:
- who holds a message has it alone until its time is over, whatever happens to the broker;
- what is acknowledged in time is never seen again;
- every other message is: in the end each one has been acknowledged, and none is stuck.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.headers.pop import (
    AckHeader,
    ChangeInvisibleTimeHeader,
    ChangeInvisibleTimeReply,
    PopHeader,
)
from bolide.protocol.pop_info import Receipt, real_topic
from tests.support.pop_core import PopCore
from tests.support.popping import PoppedMessage, read_pop

T = TypeVar("T")

GROUP = "G"
FREE, STRICT = "Free", "Strict"
QUEUES = {FREE: 3, STRICT: 2}
LONG = 100_000.0
MEMORY = next(filter(Path.exists, [Path("/dev/shm")]), None)

times = st.sampled_from([0, 1, 1000, 5000, 30_000])
pauses = st.sampled_from([0.001, 1.0, 3.0, 10.0, 40.0])


@dataclass
class Held:
    """A message that a consumer has."""

    topic: str
    message: PoppedMessage
    due: float
    """Until when nobody else may have it."""


@dataclass
class Letter:
    """What the test knows of a message."""

    topic: str
    queue_id: int
    is_done: bool = False
    is_surely_done: bool = False
    """It was acknowledged in time, so nobody may get it again."""
    holders: list[Held] = field(default_factory=list)


class PopMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="pop-", dir=MEMORY))
        self.loop = asyncio.new_event_loop()
        self.numbers = count()
        self.letters: dict[bytes, Letter] = {}
        self.held: list[Held] = []
        self.attempts = count()

    @initialize(retry_v2=st.booleans())
    def begin(self, retry_v2: bool) -> None:
        async def start() -> PopCore:
            core = PopCore(self.directory, max_backlog=5, enable_retry_topic_v2=retry_v2)
            for topic, queues in QUEUES.items():
                await core.create(topic, queues)
            return core

        self.core = self.wait(start())

    # ---- what may happen

    @rule(topic=st.sampled_from([FREE, STRICT]), queue=st.integers(0, 2), many=st.integers(1, 4))
    def send(self, topic: str, queue: int, many: int) -> None:
        async def send() -> None:
            for _ in range(many):
                body = b"%d" % next(self.numbers)
                queue_id = queue % QUEUES[topic]
                self.core.send(topic, queue_id, body)
                self.letters[body] = Letter(topic, queue_id)
            await asyncio.sleep(0)

        self.wait(send())

    @rule(most=st.integers(1, 5), invisible=times)
    def pop(self, most: int, invisible: int) -> None:
        self.take(FREE, most, invisible)

    @rule(most=st.integers(1, 5), invisible=times)
    def pop_in_order(self, most: int, invisible: int) -> None:
        for held in self.take(STRICT, most, invisible):
            assert held.message.record.topic == STRICT

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        held = data.draw(st.sampled_from(self.held))
        self.acknowledge_one(held)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), invisible=times)
    def change(self, data: st.DataObject, invisible: int) -> None:
        """Keep it for longer, or give it back."""
        held = data.draw(st.sampled_from(self.held))
        receipt = held.message.receipt
        header = ChangeInvisibleTimeHeader(
            GROUP, real_topic(held.topic, GROUP, receipt.retry), receipt.queue_id,
            receipt.encode(), receipt.offset, invisible,
        )  # fmt: skip
        answer = self.wait(self.core.call(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header))
        if answer.code == ResponseCode.NO_MESSAGE:
            assert self.is_over(held)
            return
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        reply = ChangeInvisibleTimeReply.from_fields(answer.fields)
        if receipt.is_ordered:
            changed = receipt._replace(invisible_time=reply.invisible_time)
        else:
            changed = receipt._replace(
                start_offset=receipt.offset,
                pop_time=reply.pop_time,
                invisible_time=reply.invisible_time,
            )
        self.replace(held, changed, self.core.clock.now + invisible / 1000)

    @rule(seconds=pauses)
    def pass_time(self, seconds: float) -> None:
        self.core.clock.now += seconds
        self.wait(self.core.work())

    @rule(seconds=st.sampled_from([2.0, 3600.0]))
    def set_clock_back(self, seconds: float) -> None:
        """What was held is held as long as before, and not for an hour."""
        self.core.clock.now -= seconds
        for held in self.held:
            held.due -= seconds

    @rule()
    def save(self) -> None:
        self.wait(self.core.work())
        self.core.save()

    @rule()
    def crash(self) -> None:
        self.core = self.wait(self.core.crashed())

    @rule()
    def restart(self) -> None:
        self.core = self.wait(self.core.stopped())

    # ---- in the end

    def teardown(self) -> None:
        try:
            if hasattr(self, "core"):
                self.finish()
                self.wait(self.core.stop())
        finally:
            self.loop.close()
            shutil.rmtree(self.directory, ignore_errors=True)

    def finish(self) -> None:
        """Everything that is not done comes again when time has passed, as often as it takes."""
        for _ in range(50):
            self.core.clock.now += LONG
            self.wait(self.core.work())
            taken = [*self.take(FREE, 32, 60_000), *self.take(STRICT, 32, 60_000)]
            for held in taken:
                self.acknowledge_one(held)
            if not taken and all(letter.is_done for letter in self.letters.values()):
                break
        stuck = [body for body, letter in self.letters.items() if not letter.is_done]
        assert not stuck
        self.core.clock.now += LONG
        self.wait(self.core.work())
        self.check_offsets()

    def check_offsets(self) -> None:
        """Whoever opens the store next begins behind all of it."""
        self.wait(self.core.work())
        for name, queue in self.core.pop.state.queues.items():
            assert queue.low == queue.next_offset
            assert queue.in_flight == 0
            assert self.core.store.max_offset(name[0], name[2]) == queue.low
            assert self.core.tables.offsets.find(GROUP, name[0], name[2]) == queue.low

    # ---- inside

    def wait(self, scenario: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(scenario)

    def take(self, topic: str, most: int, invisible: int) -> list[Held]:
        now = self.core.clock.now
        header = PopHeader(
            consumer_group=GROUP, topic=topic, queue_id=-1, max_msg_nums=most,
            invisible_time=invisible, poll_time=0, born_time=0, init_mode=0,
            order=topic == STRICT, attempt_id=str(next(self.attempts)),
        )  # fmt: skip
        answer = self.wait(self.core.call(RequestCode.POP_MESSAGE, header))
        assert answer.code in {ResponseCode.SUCCESS, ResponseCode.POLLING_TIMEOUT}, answer.remark
        taken = []
        for message in read_pop(topic, answer).messages:
            held = Held(topic, message, now + invisible / 1000)
            self.check(held)
            self.letters[message.body].holders.append(held)
            taken.append(held)
        self.held += taken
        if topic == STRICT:
            self.check_order(taken)
        return taken

    def check(self, held: Held) -> None:
        letter = self.letters[held.message.body]
        assert letter.topic == held.topic
        if held.topic == FREE:
            assert not letter.is_surely_done, f"{held.message.body!r} was acknowledged"
        holders = [each for each in letter.holders if self.core.clock.now < each.due]
        assert not holders, f"{held.message.body!r} is with somebody: {holders}"

    def check_order(self, taken: list[Held]) -> None:
        """Of each queue the oldest that is not done, and then one behind the other."""
        for queue_id in range(QUEUES[STRICT]):
            got = [
                held.message.receipt.offset
                for held in taken
                if held.message.receipt.queue_id == queue_id
            ]
            if got:
                assert got == list(range(got[0], got[0] + len(got)))
                before = [
                    letter
                    for letter in self.letters.values()
                    if letter.topic == STRICT and letter.queue_id == queue_id
                ][: got[0]]
                assert all(letter.is_done for letter in before)

    def is_over(self, held: Held) -> bool:
        letter = self.letters[held.message.body]
        return self.core.clock.now >= held.due or letter.is_done or held not in letter.holders

    def acknowledge_one(self, held: Held) -> None:
        receipt = held.message.receipt
        topic = real_topic(held.topic, GROUP, receipt.retry)
        header = AckHeader(GROUP, topic, receipt.queue_id, receipt.encode(), receipt.offset)
        answer = self.wait(self.core.call(RequestCode.ACK_MESSAGE, header))
        letter = self.letters[held.message.body]
        if receipt.is_ordered and answer.code == ResponseCode.MESSAGE_ILLEGAL:
            # A clock that stands, or went back, gives a pop the time of one that was over before
            # a restart.
            assert self.is_over(held)
            self.held.remove(held)
            return
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        letter.is_done = True
        letter.is_surely_done |= not self.is_expired(held, letter)
        if held in self.held:
            self.held.remove(held)
        held.due = 0.0

    def is_expired(self, held: Held, letter: Letter) -> bool:
        return self.core.clock.now >= held.due or held not in letter.holders

    def replace(self, held: Held, receipt: Receipt, due: float) -> None:
        letter = self.letters[held.message.body]
        self.held.remove(held)
        if held in letter.holders:
            letter.holders.remove(held)
        changed = Held(held.topic, held.message._replace(receipt=receipt), due)
        self.held.append(changed)
        letter.holders.append(changed)


def run_it(examples: int, steps: int) -> None:
    run_state_machine_as_test(
        PopMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_every_message_is_acknowledged_or_delivered_again() -> None:
    run_it(examples=30, steps=40)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_every_message_is_acknowledged_or_delivered_again_many_times_over() -> None:
    run_it(examples=1000, steps=80)
