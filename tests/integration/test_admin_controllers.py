"""Admin commands about controllers and the groups that they look after."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from bolide.broker.server import Broker
from bolide.cli import app
from tests.integration.test_elected_masters import Group, group
from tests.support.admin_cluster import NOBODY, Cluster
from tests.support.aio import on_loop, until


class Stage:
    """Two brokers of one group and their controller, and the commands that are run there."""

    def __init__(self, members: Group, master: Broker) -> None:
        config = master.config.value
        self.members, self.master = members, master
        self.name, self.cluster = config.broker_name, config.broker_cluster_name
        self.controller = config.controller_addr[0]
        self.name_server = config.name_servers[0]
        self._commands = Cluster(self.name_server, master.address)

    async def run(self, *words: str, code: int = 0) -> str:
        return await asyncio.to_thread(self._commands.run, *words, code=code)

    async def document(self, *words: str) -> Any:
        return json.loads((await self.run(*words, "--json")).splitlines()[-1])


@on_loop
async def test_a_group_and_its_controllers_are_shown_and_changed(tmp_path: Path) -> None:
    async with group(tmp_path, "one", "two") as members:
        master = await members.master()
        await members.in_sync(2)
        stage = Stage(members, master)

        await _check_controllers(stage)
        await _check_sync_state_set(stage)
        await _check_logs(stage)
        await _check_drain(stage)
        await _check_election(stage)
        await _check_cleaning(stage)


async def _check_controllers(stage: Stage) -> None:
    controller = stage.controller
    metadata = await stage.run("getControllerMetaData", "-a", controller)
    assert re.search(rf"^#ControllerLeaderAddress\t{controller}$", metadata, re.MULTILINE)
    assert re.search(rf"^#Peer:\tn0:{controller}$", metadata, re.MULTILINE)
    key = ("-k", "enableElectUncleanMaster", "-v", "false")
    changed = await stage.run("updateControllerConfig", "-a", controller, *key)
    assert changed.startswith(f"update controller config success![{controller}]\n")
    settings = await stage.run("getControllerConfig", "-a", f"{controller};{NOBODY}", code=3)
    assert f"============{controller}============\n" in settings
    assert re.search(r"^enableElectUncleanMaster +=  false$", settings, re.MULTILINE)
    assert f"cannot connect to {NOBODY}" in settings
    words = ["config", "explain", "enableElectUncleanMaster", "-n", stage.name_server]
    explained = await asyncio.to_thread(CliRunner().invoke, app, words)
    assert explained.exit_code == 0, explained.output
    assert f"  value         false at controller {controller}\n" in explained.output


async def _check_sync_state_set(stage: Stage) -> None:
    words = ("getSyncStateSet", "-a", stage.controller)
    shown = await stage.run(*words, "-b", stage.name)
    assert shown.startswith(f"\n#brokerName\t{stage.name}\n#MasterBrokerId\t1\n#MasterAddr\t")
    identity = rf"ReplicaIdentity\{{brokerName='{stage.name}', brokerId=2, brokerAddress='\S+', "
    assert re.search(rf"^InSyncReplica:\t{identity}alive=true\}}$", shown, re.MULTILINE)
    (found,) = await stage.document(*words, "-c", stage.cluster)
    assert [each["inSync"] for each in found["replicas"]] == [True, True]
    unknown = await stage.run(*words, "-b", "nobody", code=1)
    assert f"the controller {stage.controller} knows no broker group nobody" in unknown


async def _check_logs(stage: Stage) -> None:
    epochs = await stage.run("getBrokerEpoch", "-b", stage.name)
    assert epochs.count(f"#brokerName\t{stage.name}\n") == 2
    end = stage.master.store.log.end
    entry = f"#Epoch: EpochEntry{{epoch=1, startOffset=0, endOffset={end}}}\n"
    assert epochs.count(entry) == 2
    status = await stage.run("haStatus", "-b", stage.master.address)
    assert f"\n#MasterAddr\t{stage.master.address}\n" in status
    assert "#TransferFromWhere" in status


async def _check_drain(stage: Stage) -> None:
    (slave,) = stage.members.slaves()
    refused = await stage.run("drain", "-b", slave.address, code=1)
    assert f"{slave.address} is a slave, to which nobody writes" in refused
    quick = ("--yes", "--settle", "0.1", "--interval", "0.1", "--timeout", "20")
    (found,) = await stage.document("drain", "-c", stage.cluster, *quick)
    assert found["safe"]
    assert not any("no replica" in reason for reason in found["unknown"])
    assert await stage.document("drain", "-b", stage.master.address, "--undo") == [
        {"brokerName": stage.name, "stillClosed": []}
    ]


async def _check_election(stage: Stage) -> None:
    elect = ("electMaster", "-a", stage.controller, "-bn", stage.name, "-c", stage.cluster, "-b")
    plan = await stage.document(*elect, "2", "--dry-run")
    assert (plan["masterBrokerId"], plan["newMasterBrokerId"], plan["inSync"]) == (1, 2, True)
    assert "nothing was changed" in await stage.run(*elect, "2", code=1)
    assert "has the members 1, 2" in await stage.run(*elect, "7", "--yes", code=2)
    elected = await stage.run(*elect, "2", "--yes")
    await until(lambda: stage.members.masters() not in ([], [stage.master]))
    (new_master,) = stage.members.masters()
    assert f"#BrokerMasterAddr\t{new_master.address}\n#MasterEpoch\t2\n" in elected


async def _check_cleaning(stage: Stage) -> None:
    await stage.members.in_sync(2)
    clean = ("cleanBrokerMetadata", "-a", stage.controller, "-bn", stage.name, "-b", "1", "--yes")
    assert "-c is needed" in await stage.run(*clean, code=2)
    assert "still alive" in await stage.run(*clean, "-c", stage.cluster, code=1)
    forgotten = await stage.run(*clean, "-c", stage.cluster, "-l")
    assert f"clear broker {stage.name} metadata from controller success!" in forgotten
    (found,) = await stage.document("getSyncStateSet", "-a", stage.controller, "-b", stage.name)
    assert [each["brokerId"] for each in found["replicas"]] == [2]


def test_a_server_that_is_no_controller_is_named(cluster: Cluster) -> None:
    for words in (
        ("getControllerMetaData",),
        ("getControllerConfig",),
        ("getSyncStateSet", "-b", "broker-a"),
        ("electMaster", "-b", "1", "-bn", "broker-a", "-c", "DefaultCluster", "--yes"),
    ):
        printed = cluster.run(*words, "-a", cluster.broker, code=4)
        assert "not applicable, because the server is no controller" in printed
    epochs = cluster.run("getBrokerEpoch", "-c", "DefaultCluster", code=1)
    assert "controllerMode" in epochs
