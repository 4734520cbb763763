"""Senders and a listener at full speed in one process: `e2e`."""

import time

from bolide.bench.counters import ConsumeCounters, SendCounters
from bolide.bench.report import ConsumeProgress, Say, SendProgress
from bolide.bench.round_trip import all_heard, round_trip
from bolide.bench.runner import Bounds, Run
from bolide.bench.sending import Senders
from bolide.bench.stamps import Stamps
from bolide.bench.summary import Summary, send_figures
from bolide.bench.workload import Workload
from bolide.client.instance.settings import ClientArguments
from bolide.model.message import StoredMessage


async def measure_both(
    load: Workload, group: str, bounds: Bounds, say: Say, client: ClientArguments
) -> Summary:
    """Send until the bounds are reached, and consume all of it.

    Raises:
        NothingArrives: messages are not heard.
        NoNameServer: there is nobody to ask for routes.
    """
    sends, consumed, stamps = SendCounters(), ConsumeCounters(), Stamps(load.topic, load.size)

    def heard(message: StoredMessage, age: float) -> None:
        consumed.got(age, time.time() - message.store_timestamp / 1000)

    async with round_trip(stamps, load.topic, group, heard, client) as producer:
        run = Run(bounds)
        send_line, consume_line = SendProgress(sends, say), ConsumeProgress(consumed, say)

        def progress() -> None:
            send_line()
            consume_line()

        senders = Senders(producer, load, sends, make=stamps.message)
        took = await run.until_done(senders.work(run), progress)
        began = time.perf_counter()
        await all_heard(lambda: consumed.born.count, sends.messages)
        behind = time.perf_counter() - began
        send_line.complete(took.seconds)
    figures = send_figures(sends, took) | {
        "received": consumed.born.count,
        "seconds_behind": round(behind, 3),
    }
    times = {"latency": consumed.born, "store_to_consume": consumed.stored, "send": sends.times}
    return Summary(command="e2e", figures=figures, times=times, last_failure=sends.last_failure)
