"""Brokers and mqadmin of RocketMQ 5.x with our controllers."""

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.bench import Bench, Server
from tests.interop.conftest import NEWEST
from tests.interop.ours import bolide_namesrv
from tests.support.controllers import free_peers

pytestmark = pytest.mark.interop

PATIENCE = 60.0


def eventually(look: Callable[[], str], pattern: str) -> str:
    """Run something until its output matches."""
    deadline = time.monotonic() + PATIENCE
    while True:
        printed = look()
        if re.search(pattern, printed, re.DOTALL):
            return printed
        assert time.monotonic() < deadline, f"{pattern} is not in:\n{printed}"


def test_rocketmqs_brokers_fail_over_by_our_controller(java_bench: Bench, tmp_path: Path) -> None:
    peers = free_peers(1)
    controller = peers.partition("-")[2]
    with bolide_namesrv(
        tmp_path / "ours",
        enableControllerInNamesrv=True,
        controllerDLegerPeers=peers,
        controllerStorePath=str(tmp_path / "controller"),
    ) as ours:

        def broker() -> Server:
            return java_bench.broker(
                NEWEST,
                ours.address,
                enableControllerMode=True,
                controllerAddr=controller,
                brokerRole="SLAVE",
                haListenPort=0,
            )

        def sync_state() -> str:
            return java_bench.mqadmin(NEWEST, "getSyncStateSet", "-a", controller, "-b", "broker-a")

        broker()
        shown = java_bench.mqadmin(NEWEST, "getControllerMetaData", "-a", controller)
        assert re.search(r"ControllerLeaderId\s+n0", shown)
        assert re.search(rf"ControllerLeaderAddress\s+{controller}", shown)
        eventually(sync_state, r"MasterBrokerId\s+1\b.*MasterEpoch\s+1\b")
        second = broker()
        eventually(sync_state, r"SyncStateSetNums\s+2")

        java_bench.mqadmin(
            NEWEST, "electMaster", "-a", controller, "-b", "2", "-bn", "broker-a",
            "-c", "DefaultCluster",
        )  # fmt: skip
        eventually(sync_state, r"MasterBrokerId\s+2\b.*MasterEpoch\s+2\b.*SyncStateSetNums\s+2")

        second.kill()
        eventually(sync_state, r"MasterBrokerId\s+1\b.*MasterEpoch\s+3\b")
        eventually(
            lambda: java_bench.mqadmin(NEWEST, "clusterList", namesrv=ours.address),
            r"broker-a\s+0\s",
        )
