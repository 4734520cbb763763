"""Which member of a broker group is suggested, and how a slave answers pulls."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bolide.broker.consume import slave_reads
from bolide.broker.settings.config import BrokerRole
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.frame import Frame
from bolide.protocol.headers.pull import PullReply
from bolide.protocol.refusals import SystemBusy
from bolide.store.reading import ReadResult, ReadStatus
from tests.support.aio import on_loop
from tests.support.broker import COMMIT, SUBSCRIBED, SUSPEND, pull_header
from tests.support.broker_core import BrokerCore
from tests.support.store import draft

FOUND, NOTHING, AGAIN, MOVED = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


def test_a_group_names_the_members_to_suggest_if_slaves_may_be_read() -> None:
    group = GroupConfig(group_name="G", broker_id=2, which_broker_when_consume_slowly=3)
    assert slave_reads.suggestions(group, slave_read_enable=True) == (2, 3)
    assert slave_reads.suggestions(group, slave_read_enable=False) == (0, 0)


def test_only_a_slave_without_slave_read_enable_refuses() -> None:
    for is_slave, enabled in ((False, False), (False, True), (True, True)):
        slave_reads.refuse_slave_reads(is_slave=is_slave, slave_read_enable=enabled)
    with pytest.raises(SystemBusy, match="slaveReadEnable"):
        slave_reads.refuse_slave_reads(is_slave=True, slave_read_enable=False)


@pytest.mark.parametrize("code", [NOTHING, AGAIN, MOVED])
def test_a_slave_turns_what_it_has_not_found_into_another_try(code: ResponseCode) -> None:
    assert slave_reads.slave_code(code, is_slave=True, master_is_up=True) == AGAIN
    assert slave_reads.slave_code(code, is_slave=True, master_is_up=False) == code
    assert slave_reads.slave_code(code, is_slave=False, master_is_up=True) == code
    assert slave_reads.slave_code(FOUND, is_slave=True, master_is_up=True) == FOUND


def test_a_slave_sends_back_who_has_caught_up_while_there_is_a_master() -> None:
    def sends_back(is_slave: bool, master_is_up: bool, is_far_behind: bool) -> bool:
        return slave_reads.sends_back(
            is_slave=is_slave, master_is_up=master_is_up, is_far_behind=is_far_behind
        )

    assert sends_back(True, True, False)
    assert not sends_back(True, True, True)
    assert not sends_back(True, False, False)
    assert not sends_back(False, True, False)


def test_a_slave_corrects_no_offset() -> None:
    beyond = ReadResult(ReadStatus.OFFSET_OVERFLOW_BADLY, 5, 0, 5)
    assert slave_reads.next_offset(beyond, 9, is_slave=True) == 9
    assert slave_reads.next_offset(beyond, 9, is_slave=False) == 5
    found = ReadResult(ReadStatus.FOUND, 5, 0, 5)
    assert slave_reads.next_offset(found, 4, is_slave=True) == 5


def test_offsets_that_pulls_carry_are_not_committed_at_a_slave() -> None:
    commits = partial(
        slave_reads.commits, is_slave=False, has_flag=True, commit_offset=0, is_frozen=False
    )
    assert commits()
    assert not commits(has_flag=False)
    assert not commits(commit_offset=-1)
    assert not commits(is_slave=True)
    assert not commits(is_frozen=True)


# ---- through the handlers and the fast path


class Slave:
    """A broker that is a slave, and what it answers."""

    def __init__(self, directory: Path, *, master_is_up: bool = True, **settings: Any) -> None:
        self.core = BrokerCore(
            directory, broker_role=BrokerRole.SLAVE, **{"slave_read_enable": True} | settings
        )
        pulls = self.core.parts.pulls
        pulls.parts = replace(pulls.parts, master_is_up=lambda: master_is_up)
        for number in range(5):
            self.core.intake.append(draft("T", b"%d" % number))

    async def __aenter__(self) -> "Slave":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.core.stop()

    async def pull(self, queue_offset: int = 0, **given: Any) -> Frame:
        header = pull_header(queue_offset=queue_offset, **given)
        return await self.core.connect().call(RequestCode.PULL_MESSAGE, header)


def told(frame: Frame) -> tuple[int, int, int]:
    """Code, suggested broker and next offset."""
    header = PullReply.from_fields(frame.fields)
    return frame.code, header.suggest_which_broker_id, header.next_begin_offset


@on_loop
async def test_a_slave_serves_pulls_only_if_it_may(tmp_path: Path) -> None:
    async with Slave(tmp_path, slave_read_enable=False) as slave:
        answer = await slave.pull()
        assert answer.code == ResponseCode.SYSTEM_BUSY
        slave.core.cell.apply({"slaveReadEnable": "true"})
        assert (await slave.pull()).code == FOUND


@on_loop
async def test_a_slave_that_has_what_is_asked_for_suggests_the_master(tmp_path: Path) -> None:
    async with Slave(tmp_path) as slave:
        await slave.core.parts.groups.update(GroupConfig(group_name="readers", broker_id=1))
        assert told(await slave.pull()) == (FOUND, 0, 5)


@on_loop
async def test_a_slave_without_a_master_suggests_what_the_group_says(tmp_path: Path) -> None:
    async with Slave(tmp_path, master_is_up=False) as slave:
        await slave.core.parts.groups.update(GroupConfig(group_name="readers", broker_id=1))
        assert told(await slave.pull()) == (FOUND, 1, 5)


@on_loop
async def test_a_reader_that_is_far_behind_may_stay_at_a_slave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bolide.broker.consume.pull._MEMORY", 1)
    async with Slave(tmp_path) as slave:
        assert told(await slave.pull(max_msg_nums=1)) == (FOUND, 1, 1)


@on_loop
async def test_a_slave_holds_no_pull_that_its_master_can_serve(tmp_path: Path) -> None:
    async with Slave(tmp_path) as slave:
        waits = {"sys_flag": SUBSCRIBED | SUSPEND, "suspend_timeout_millis": 60_000}
        assert told(await slave.pull(5, **waits)) == (AGAIN, 0, 5)


@on_loop
async def test_a_slave_that_lacks_messages_moves_nobody(tmp_path: Path) -> None:
    async with Slave(tmp_path) as slave:
        assert told(await slave.pull(9)) == (AGAIN, 0, 9)
    async with Slave(tmp_path / "alone", master_is_up=False) as slave:
        assert told(await slave.pull(9)) == (MOVED, 0, 9)


@on_loop
async def test_a_slave_commits_no_offsets_of_pulls(tmp_path: Path) -> None:
    async with Slave(tmp_path) as slave:
        await slave.pull(0, sys_flag=SUBSCRIBED | COMMIT, commit_offset=3)
        group = pull_header().consumer_group
        assert slave.core.parts.offsets.find(group, "T", 0) is None


@on_loop
async def test_prepared_pulls_fall_through_once_the_broker_is_a_slave(tmp_path: Path) -> None:
    async with Slave(tmp_path) as slave:
        core = slave.core
        slave.core.cell.apply({"brokerRole": "ASYNC_MASTER"})
        assert told(await slave.pull()) == (FOUND, 0, 5)
        slave.core.cell.apply({"brokerRole": "SLAVE"})
        assert told(await slave.pull(5)) == (AGAIN, 0, 5)
        assert core.cell.value.broker_role is BrokerRole.SLAVE
