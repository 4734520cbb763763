from bolide.operations.history.group_parts import GroupPart
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.bodies.stats import ConsumeStats, QueueProgress


def test_the_lag_of_a_group_is_summed_over_what_its_broker_tells() -> None:
    table = {
        MessageQueue("Orders", "broker-a", 0): QueueProgress(broker_offset=10, consumer_offset=4),
        MessageQueue("Orders", "broker-a", 1): QueueProgress(broker_offset=5, consumer_offset=6),
        MessageQueue("Static", "broker-a", 0): QueueProgress(broker_offset=99, consumer_offset=-1),
        MessageQueue("%RETRY%shop", "broker-a", 0): QueueProgress(broker_offset=9),
        MessageQueue("Done", "broker-a", 0): QueueProgress(broker_offset=7, consumer_offset=7),
    }
    part = GroupPart.of(ConsumeStats(offset_table=table, consume_tps=2.5), frozenset({"c1"}))
    assert (part.lag, part.rate_out) == (15, 2.5)
    assert part.topics == ("Done", "Orders")
    assert part.lagging == ("%RETRY%shop", "Orders")
    assert part.with_delays([3.0, 8.0]).delay == 8.0
    assert part.with_delays([3.0, None]).delay is None, "one of them is unknown"
    assert part.with_delays([]).delay == 0.0
