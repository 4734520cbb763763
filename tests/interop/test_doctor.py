"""`bolide doctor` examines a cluster of Apache's servers by the same protocol."""

from contextlib import AsyncExitStack

from bolide.admin import AdminClient
from bolide.client.consumer.push.push_consumer import PushConsumer
from bolide.doctor import Limits, Report, Severity, examine
from bolide.protocol.bodies.topics import TopicConfig
from tests.interop.bench import Bench
from tests.support.aio import on_loop
from tests.support.ports import free_port

LIMITS = Limits(answer=4.0, total=20.0)


async def report_of(*name_servers: str) -> Report:
    async with AdminClient(name_servers, timeout=LIMITS.answer) as admin:
        return await examine(admin, limits=LIMITS)


def found(report: Report, *severities: Severity) -> dict[tuple[str, str], str]:
    return {
        (each.id, each.subject): each.measured
        for each in report.findings
        if each.severity in severities and each.subject != "this machine"
    }


def test_apache_servers_are_examined(java_bench: Bench, rocketmq: str) -> None:
    server = java_bench.namesrv(rocketmq)
    first = java_bench.broker(rocketmq, server.address)
    alone = java_bench.broker(
        rocketmq, server.address, brokerName="broker-b", brokerRole="SYNC_MASTER"
    )
    _examine(server.address, first.address, alone.address, tells_replicas=rocketmq != "4.9")
    alone.kill()
    _examine_again(server.address, first.address)


@on_loop
async def _examine(server: str, first: str, alone: str, *, tells_replicas: bool) -> None:
    closed = f"127.0.0.1:{free_port()}"
    async with AdminClient(server) as admin, AsyncExitStack() as stack:
        for name, writes in (("Even", 2), ("Lossy", 4)):
            config = TopicConfig(topic_name=name, read_queue_nums=2, write_queue_nums=writes)
            await admin.topics.update(first, config)
            if name == "Even":
                await admin.topics.update(alone, config)
        for expression in ("a", "a || b"):
            consumer = PushConsumer("differing", name_server=server)
            await consumer.subscribe("Even", expression, print)
            await stack.enter_async_context(consumer)

        report = await report_of(server, closed)

    label, other = f"broker-a (id 0) at {first}", f"broker-b (id 0) at {alone}"
    errors = found(report, Severity.ERROR)
    assert errors.keys() == {
        ("name-server-reachable", closed),
        ("topic-queues", "Lossy on broker-a"),
        ("subscriptions", "differing"),
        *([("replicas", other)] if tells_replicas else []),
    }
    # Java's brokers keep their limits to themselves; nothing else stays unknown.
    unknown = found(report, Severity.UNKNOWN)
    silent = {"broker-limits"} if tells_replicas else {"broker-limits", "replicas"}
    assert {name for name, _ in unknown} == silent, unknown
    sound = found(report, Severity.OK)
    for name in ("broker-reachable", "vip-port", "clock-difference", "disk-usage", "broker-load"):
        assert (name, label) in sound
    assert any("All brokers are RocketMQ V" in text for text in sound.values())
    assert ("topic-brokers", "Lossy on broker-b") in found(report, Severity.NOTE)
    # Java's brokers listen on every interface, whatever they announce.
    warnings = found(report, Severity.WARNING)
    assert {("access-control", label), ("ha-port", label)} <= warnings.keys()


@on_loop
async def _examine_again(server: str, first: str) -> None:
    report = await report_of(server)
    assert report.is_reachable
    errors = found(report, Severity.ERROR)
    # Until the NameServer has noticed, the dead broker is registered.
    assert errors.keys() - {("topic-queues", "Lossy on broker-a")} <= {
        key for key in errors if key[0] == "broker-reachable"
    }
    assert ("clock-difference", f"broker-a (id 0) at {first}") in found(report, Severity.OK)
