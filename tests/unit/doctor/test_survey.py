"""A survey of servers that answer with nonsense."""

from contextlib import AsyncExitStack

from bolide.admin import AdminClient
from bolide.doctor import Limits, Severity, examine
from bolide.protocol.bodies.routes import BrokerRoute, ClusterInfo, KvTable
from bolide.protocol.codes import RequestCode
from tests.support.aio import on_loop
from tests.unit.admin.scripted import CLUSTER, Scripted

_SETTINGS = (
    "haListenPort=99999999", "brokerIP2=a\0b", "controllerAddr=nonsense;x:y;h\0:1",
    "diskMaxUsedSpaceRatio=many", "inSyncReplicas=1e999", "brokerRole=SYNC_MASTER",
)  # fmt: skip
_FIGURES = {
    "commitLogDiskRatio": "0.5", "bootTimestamp": "9" * 5000, "runtime": "1 days",
    "bolideBeforeRestart": "[1]", "bolideVersion": "x", "bolideOpenFileLimit": "nan",
}  # fmt: skip


@on_loop
async def test_nonsense_in_answers_is_unknown_and_ends_nothing() -> None:
    async with AsyncExitStack() as stack:
        name_server, broker = Scripted(), Scripted()
        for each in (name_server, broker):
            await stack.enter_async_context(each.server)
        odd = ("nonsense", "h\0:1", "host:99999", "127.0.0.1:1")
        table = {
            f"broker-{number}": BrokerRoute(
                broker_name=f"broker-{number}", cluster=CLUSTER, broker_addrs={0: address}
            )
            for number, address in enumerate((broker.address, *odd))
        }
        info = ClusterInfo(broker_addr_table=table, cluster_addr_table={CLUSTER: [*table]})
        name_server.answers(RequestCode.GET_BROKER_CLUSTER_INFO, info)
        broker.answers(RequestCode.GET_BROKER_CONFIG, "\n".join(_SETTINGS).encode())
        broker.answers(RequestCode.GET_BROKER_RUNTIME_INFO, KvTable(table=_FIGURES))
        admin = await stack.enter_async_context(AdminClient(name_server.address))

        report = await examine(admin, limits=Limits(answer=1.0, total=5.0))

    unknown = {each.id for each in report.of(Severity.UNKNOWN)}
    assert {"disk-usage", "clock-difference", "durability", "dead-letters"} <= unknown
    unreachable = {each.subject for each in report.of(Severity.ERROR)
                   if each.id == "broker-reachable"}  # fmt: skip
    assert len(unreachable) == len(odd)
