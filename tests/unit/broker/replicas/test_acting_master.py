"""Which slave acts for the master of its group."""

import logging
from pathlib import Path

import pytest

from bolide.broker.replicas.acting_master import acts
from bolide.broker.settings.config import BrokerRole
from tests.support.aio import on_loop, until
from tests.support.broker import broker_in

MASTER, FIRST, SECOND = {0: "m:1"}, {1: "s:1"}, {2: "s:2"}


@pytest.mark.parametrize(
    ("answers", "broker_id", "expected"),
    [
        ([FIRST], 1, True),
        ([FIRST | SECOND], 1, True),
        ([FIRST | SECOND], 2, False),
        ([MASTER | FIRST], 1, False),
        ([FIRST, MASTER | FIRST], 1, False),  # one NameServer has just been started
        ([FIRST, {}], 1, True),
        ([FIRST | SECOND, SECOND], 2, False),
        ([{}], 1, False),  # this slave is not registered yet
        ([], 1, False),
    ],
)
def test_the_slave_with_the_lowest_id_acts_if_no_name_server_knows_a_master(
    answers: list[dict[int, str]], broker_id: int, *, expected: bool
) -> None:
    assert acts(answers, broker_id, is_replicating=False) is expected


def test_a_slave_whose_master_is_connected_does_not_act() -> None:
    assert not acts([FIRST], 1, is_replicating=True)


@on_loop
async def test_a_slave_without_the_setting_asks_nobody(tmp_path: Path) -> None:
    async with broker_in(tmp_path, broker_role=BrokerRole.SLAVE, broker_id=1) as slave:
        assert slave.parts.acting is not None
        assert not slave.parts.acting.is_acting


@on_loop
async def test_in_controller_mode_nobody_acts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with broker_in(
        tmp_path,
        enable_controller_mode=True,
        controller_addr=("127.0.0.1:1",),
        enable_slave_acting_master=True,
    ):
        await until(lambda: "enableSlaveActingMaster has no effect" in caplog.text)
