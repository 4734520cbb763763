"""Java brokers, clients and mqadmin find each other through our NameServer."""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from tests.interop.bench import Bench, Server
from tests.interop.ours import bolide_namesrv
from tests.interop.processes import ChildProcess, ProcessFailed

BROKERS = {"4.9": "broker-of-4", "5.x": "broker-of-5"}


@dataclass(frozen=True)
class Twins:
    """Our NameServer and a Java one; the same two Java brokers are registered at both."""

    ours: Server
    java: Server
    bench: Bench

    def mqadmin(self, version: str, *arguments: str) -> tuple[str, str]:
        """What a command prints against ours and against Java's, masked alike."""
        with ThreadPoolExecutor() as pool:
            ours, java = pool.map(
                lambda server: mask(self._printed(version, server, *arguments), server),
                (self.ours, self.java),
            )
        return ours, java

    def _printed(self, version: str, server: Server, *arguments: str) -> str:
        try:
            return self.bench.mqadmin(version, *arguments, namesrv=server.address)
        except ProcessFailed as failed:
            # 4.9's clusterList stumbles over a 5.x broker; it must do so with either server.
            return str(failed).partition("\n")[2]


@pytest.fixture(scope="module")
def twins(java_module_bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    java = java_module_bench.namesrv("5.x", scanNotActiveBrokerInterval=5000)
    directory = tmp_path_factory.mktemp("ours")
    with bolide_namesrv(directory, scanNotActiveBrokerInterval=5000, bindAddress="0.0.0.0") as ours:
        both = f"{ours.address};{java.address}"
        for version, name in BROKERS.items():
            java_module_bench.broker(version, both, brokerName=name)
        yield Twins(ours, java, java_module_bench)


@pytest.mark.parametrize("broker", BROKERS.values())
def test_java_clients_exchange_a_thousand_messages(
    rocketmq: str, broker: str, twins: Twins, java_client: Callable[..., ChildProcess]
) -> None:
    topic = f"Thousand-{rocketmq.replace('.', '')}-{broker}"
    job = (twins.ours.address, topic, 1000)
    twins.bench.mqadmin(
        "5.x", "updateTopic", "-b", broker_address(twins, broker), "-t", topic,
        namesrv=twins.ours.address,
    )  # fmt: skip

    assert java_client(rocketmq, "SendMessages", *job).wait() == ["sent 1000"]
    assert java_client(rocketmq, "ReceiveMessages", *job).wait() == ["ready", "received 1000"]


READING = [
    ("clusterList",),
    ("topicList", "-c"),
    ("topicRoute", "-t", "TBW102"),
    ("topicRoute", "-t", "broker-of-4"),
    ("topicClusterList", "-t", "TBW102"),
    ("getNamesrvConfig",),
]


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_mqadmin_prints_what_it_prints_against_java(
    rocketmq: str, twins: Twins, command: tuple[str, ...]
) -> None:
    ours, java = twins.mqadmin(rocketmq, *command)

    assert ours == java
    assert len(java.splitlines()) > 1 or "DefaultCluster" in java


def test_mqadmin_reports_an_unknown_topic_as_it_does_with_java(rocketmq: str, twins: Twins) -> None:
    told = []
    for server in (twins.ours, twins.java):
        with pytest.raises(Exception, match="No topic route info") as failure:
            twins.bench.mqadmin(rocketmq, "topicRoute", "-t", "Missing", namesrv=server.address)
        told.append(re.findall(r"CODE: 17 .*", str(failure.value))[0])

    assert told[0] == told[1]


@pytest.mark.long
def test_mqadmin_changes_kv_configuration_and_permissions_as_with_java(
    rocketmq: str, twins: Twins
) -> None:
    steps = [
        ("updateKvConfig", "-s", "space", "-k", "key", "-v", "value"),
        ("deleteKvConfig", "-s", "space", "-k", "key"),
        ("updateOrderConf", "-t", "Ordered", "-m", "put", "-v", "broker-of-5:4"),
        ("updateOrderConf", "-t", "Ordered", "-m", "get"),
        ("updateOrderConf", "-t", "Ordered", "-m", "delete"),
        ("wipeWritePerm", "-b", "broker-of-5"),
        ("topicRoute", "-t", "TBW102"),
        ("addWritePerm", "-b", "broker-of-5"),
        ("topicRoute", "-t", "TBW102"),
    ]
    for step in steps:
        ours, java = twins.mqadmin(rocketmq, *step)
        assert ours == java, step
        assert java


@pytest.mark.long
def test_mqadmin_changes_settings_as_with_java(rocketmq: str, twins: Twins) -> None:
    change = ("updateNamesrvConfig", "-k", "waitSecondsForService", "-v", "46")
    for server in (twins.ours, twins.java):
        printed = twins.bench.mqadmin(rocketmq, *change, "-n", server.address)
        assert (
            mask(printed, server)
            == (
                "update name server config success![<server>]\nwaitSecondsForService : 46\n"
            ).strip()
        )
    ours, java = twins.mqadmin(rocketmq, "getNamesrvConfig")

    assert ours == java
    assert re.search(r"waitSecondsForService +=  46", ours)


def broker_address(twins: Twins, name: str) -> str:
    printed = twins.bench.mqadmin("5.x", "clusterList", namesrv=twins.ours.address)
    return str(re.findall(rf"{name} +\d+ +(\S+)", printed)[0])


def mask(printed: str, server: Server) -> str:
    """The lines in order, without what differs from run to run: addresses, paths, loads, times."""
    text = printed.replace(server.address, "<server>").replace(str(server.directory), "<home>")
    text = re.sub(r"(listenPort +=  )\d+", r"\1<port>", text)
    text = re.sub(r"((?:rocketmqHome|kvConfigPath|configStorePath) +=  ).*", r"\1<path>", text)
    lines = [mask_load(line.rstrip()) for line in text.splitlines()]
    return "\n".join(sorted(line for line in lines if line))


def mask_load(line: str) -> str:
    """A line of clusterList up to the version; what follows are rates, times and disk space."""
    return re.sub(r"(V\d_\d_\d\S*) .*", r"\1 <load>", line)
