"""Route queries after failures."""

import asyncio
from itertools import pairwise

import pytest

from bolide.client.errors import NoNameServer, WrongState
from bolide.client.instance import route_renewals as module
from bolide.client.instance.route_renewals import RouteRenewals
from tests.support.aio import on_loop, until


class Refresh:
    """Counts the queries, which change the route if told to."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.changes = False
        self.error: Exception | None = None

    async def __call__(self, topic: str) -> bool:
        self.times.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        return self.changes


def longest(_low: float, high: float) -> float:
    return high


@on_loop
async def test_the_first_query_is_made_at_once_and_all_who_wait_share_it() -> None:
    refresh = Refresh()
    renewals = RouteRenewals(refresh, longest)
    began = asyncio.get_running_loop().time()
    await asyncio.gather(*(renewals.renew("T") for _ in range(100)))
    assert len(refresh.times) == 1
    assert refresh.times[0] - began < 0.02
    await renewals.close()


@on_loop
async def test_queries_that_change_nothing_become_rarer() -> None:
    refresh = Refresh()
    renewals = RouteRenewals(refresh, longest)
    for _ in range(7):
        assert not await renewals.renew("T")
    pauses = [b - a for a, b in zip(refresh.times, refresh.times[1:], strict=False)]
    for pause, least in zip(pauses, (0.02, 0.04, 0.08, 0.16, 0.2, 0.2), strict=True):
        assert least - 0.005 < pause
    await renewals.close()


@on_loop
async def test_a_long_outage_costs_the_name_servers_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FAILOVER_TIME", 0.5)
    refresh = Refresh()
    renewals = RouteRenewals(refresh, longest)
    for _ in range(10):
        await renewals.renew("T")
    pauses = [b - a for a, b in pairwise(refresh.times)]
    assert pauses[-1] > 2 * module.LONGEST_PAUSE - 0.005
    await renewals.close()


@on_loop
async def test_a_changed_route_may_be_queried_again_at_once() -> None:
    refresh = Refresh()
    renewals = RouteRenewals(refresh, longest)
    await renewals.renew("T")
    await renewals.renew("T")
    refresh.changes = True
    assert await renewals.renew("T")
    began = asyncio.get_running_loop().time()
    await renewals.renew("T")
    assert refresh.times[-1] - began < 0.02
    await renewals.close()


@on_loop
async def test_a_failed_query_counts_as_an_unchanged_route() -> None:
    refresh = Refresh()
    refresh.error = NoNameServer()
    renewals = RouteRenewals(refresh)
    assert not await renewals.renew("T")
    await renewals.close()


@on_loop
async def test_a_renewal_in_the_background_is_made_and_ends_with_the_client() -> None:
    refresh = Refresh()
    renewals = RouteRenewals(refresh)
    renewals.renew_soon("T")
    await until(lambda: refresh.times)
    renewals.renew_soon("T")
    await renewals.close()
    renewals.renew_soon("T")
    with pytest.raises(WrongState):
        await renewals.renew("T")
