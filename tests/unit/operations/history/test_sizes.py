"""What the size of a topic is estimated from, and how often brokers are asked for it."""

import pytest

from bolide.admin import AdminClient
from bolide.operations.history.figures import TopicFigures
from bolide.operations.history.sizes import MeanSizes
from bolide.protocol.bodies.stats import BrokerStats, StatsWindow
from bolide.protocol.refusals import ServerError
from tests.support.aio import on_loop


@on_loop
async def test_sizes_are_means_of_a_day_times_the_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = AdminClient("127.0.0.1:1")
    told = {"TOPIC_PUT_SIZE": 3000, "TOPIC_PUT_NUMS": 10}

    async def stats(address: str, name: str, topic: str) -> BrokerStats:
        if topic == "Quiet":
            raise ServerError("The stats not exist")
        return BrokerStats(stats_day=StatsWindow(sum=told[name]))

    monkeypatch.setattr(admin.brokers, "stats", stats)
    sizes = MeanSizes(admin)
    await sizes.ask("Busy", "b:1")
    await sizes.ask("Quiet", "b:1")
    assert [sizes.estimate("Busy", each) for each in (4, 0, None)] == [1200, 0, None]
    assert sizes.estimate("Quiet", 4) is None, "unknown, not 0"
    told["TOPIC_PUT_NUMS"] = 0  # nothing came in the last day: the mean is still that of before
    await sizes.ask("Busy", "b:1")
    assert sizes.estimate("Busy", 2) == 600

    asked = [topic for topic in map(str, range(100)) if sizes.is_due(topic)]
    assert len(asked) == 25, "two requests each: half a request per sample"
    sizes.keep_only([])
    assert sizes.estimate("Busy", 2) is None
    sizes.remember({"Busy": TopicFigures(sampled=0, messages=5, bytes=500)})
    assert sizes.estimate("Busy", 2) == 200
