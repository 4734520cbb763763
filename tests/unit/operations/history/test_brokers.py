"""Which brokers are down after others took their places."""

import pytest

from bolide.admin import AdminClient
from bolide.operations.history.brokers import NOT_REGISTERED, BrokerSampler
from bolide.protocol.bodies.routes import BrokerRoute, ClusterInfo
from tests.support.aio import on_loop


@on_loop
async def test_after_a_failover_the_former_master_is_down_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registered: dict[int, str] = {}
    admin = AdminClient("127.0.0.1:1")

    async def info() -> ClusterInfo:
        route = BrokerRoute(cluster="c", broker_name="a", broker_addrs=dict(registered))
        return ClusterInfo(broker_addr_table={"a": route}, cluster_addr_table={"c": ["a"]})

    monkeypatch.setattr(admin.clusters, "info", info)
    sampler = BrokerSampler(admin, lambda _: set())

    async def members(addresses: dict[int, str]) -> dict[str, tuple[str, str]]:
        registered.clear()
        registered.update(addresses)
        await sampler.refresh_members()
        return {each.address: (each.key, each.reason) for each in sampler.in_order()}

    new = "not asked yet"
    both = await members({0: "A:1", 1: "B:1"})
    assert both == {"A:1": ("a", new), "B:1": ("a#1", new)}
    promoted = await members({0: "B:1"})
    assert promoted == {"A:1": ("a", NOT_REGISTERED), "B:1": ("a", new)}
    restarted = BrokerSampler(admin, lambda _: set())  # with what this one knew
    restarted.remember(sampler.in_order())
    await restarted.refresh_members()
    reasons = {each.address: each.reason for each in restarted.in_order()}
    assert reasons == {"A:1": NOT_REGISTERED, "B:1": ""}
    assert len(await members({0: "B:1"})) == 2  # and it stays so
    returned = await members({0: "B:1", 1: "A:1"})
    assert returned == {"A:1": ("a#1", new), "B:1": ("a", new)}
    await members({0: "B:1"})
    sampler.forget("A:1")
    sampler.forget("B:1")  # registered: it stays
    assert [each.address for each in sampler.in_order()] == ["B:1"]
