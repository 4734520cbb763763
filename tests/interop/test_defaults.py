"""Java's tools and clients with servers of ours that have no access control."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from bolide import properties
from bolide.protocol.codes import RequestCode
from bolide.remoting import event_loop
from bolide.remoting.client import RemotingClient
from tests.interop.bench import Bench
from tests.interop.ours import bolide_broker, bolide_namesrv
from tests.interop.processes import ChildProcess, ProcessFailed
from tests.support.attackers import own_address

pytestmark = pytest.mark.interop


def printed(java_bench: Bench, rocketmq: str, namesrv: str, *words: str) -> str:
    try:
        return java_bench.mqadmin(rocketmq, *words, namesrv=namesrv)
    except ProcessFailed as failed:
        return str(failed)


def test_mqadmin_changes_a_broker_over_loopback_and_not_from_elsewhere(
    rocketmq: str, java_bench: Bench, tmp_path: Path
) -> None:
    host = own_address()
    with (
        bolide_namesrv(tmp_path / "names", bindAddress="0.0.0.0") as names,
        bolide_broker(tmp_path / "broker", names.address, brokerIP1=host) as broker,
    ):

        def update(address: str, key: str, value: str) -> str:
            place = ("-b", f"{address}:{broker.port}")
            words = ("updateBrokerConfig", *place, "-k", key, "-v", value)
            return printed(java_bench, rocketmq, names.address, *words)

        assert "update broker config success" in update("127.0.0.1", "fileReservedTime", "5")
        refused = update(host, "fileReservedTime", "0")
        assert "CODE: 16" in refused
        assert "UPDATE_BROKER_CONFIG from" in refused
        assert "allowRemoteAdmin=true" in refused
        refused = update("127.0.0.1", "filterServerNums", "1")
        assert "CODE: 16" in refused
        assert "black list: filterServerNums" in refused
        show = ("getBrokerConfig", "-b", f"{host}:{broker.port}")
        shown = printed(java_bench, rocketmq, names.address, *show)
        assert re.search(r"fileReservedTime\s+=\s+5\b", shown)
        assert re.search(r"filterServerNums\s+=\s+0\b", shown)

        kv = ("updateKvConfig", "-s", "n", "-k", "k", "-v", "v")
        far = f"{host}:{names.port}"
        assert "CODE: 16" in printed(java_bench, rocketmq, far, *kv)
        assert "success" in printed(java_bench, rocketmq, names.address, *kv)


def test_java_reads_a_value_with_line_ends_as_one_value(
    rocketmq: str, java_bench: Bench, tmp_path: Path
) -> None:
    forged = "x\nlistenPort=1\\"
    with (
        bolide_namesrv(tmp_path / "names") as names,
        bolide_broker(tmp_path / "broker", names.address) as broker,
    ):
        address = f"127.0.0.1:{broker.port}"

        async def forge() -> None:
            async with RemotingClient() as client:
                body = properties.render({"regionId": forged}).encode()
                await client.call(address, RequestCode.UPDATE_BROKER_CONFIG, body=body)

        event_loop.run(forge())
        shown = printed(java_bench, rocketmq, names.address, "getBrokerConfig", "-b", address)
    assert re.findall(r"^listenPort\s+=\s+(\d+)", shown, re.MULTILINE) == [str(broker.port)]
    assert "x\nlistenPort=1\\" in shown  # mqadmin prints the decoded value


def test_java_clients_on_another_machine_send_and_receive(
    rocketmq: str, tmp_path: Path, java_client: Callable[..., ChildProcess]
) -> None:
    host = own_address()
    with (
        bolide_namesrv(tmp_path / "names", bindAddress="0.0.0.0") as names,
        bolide_broker(tmp_path / "broker", names.address, brokerIP1=host),
    ):
        job = (f"{host}:{names.port}", "Defaults", 10)
        assert java_client(rocketmq, "SendMessages", *job).wait() == ["sent 10"]
        assert java_client(rocketmq, "ReceiveMessages", *job).wait() == ["ready", "received 10"]
