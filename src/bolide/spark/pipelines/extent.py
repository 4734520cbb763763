"""What a run has before it: from where each queue is read, and up to where there are messages."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bolide.arrow.cluster import Cluster, ask
from bolide.arrow.offsets import QueueRange
from bolide.model.message_queue import MessageQueue
from bolide.spark.options import SourceOptions
from bolide.spark.pipelines.checkpoints import find_reached
from bolide.spark.pipelines.work import Pipeline, Source
from bolide.spark.subscription import find_queues

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUICKLY = 10.0
"""Seconds to wait for a broker that is away: this is only to tell people."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The queues in order; `batch` is the last one of the checkpoint, None if that is new."""

    ranges: tuple[QueueRange, ...] = ()
    batch: int | None = None
    start: dict[MessageQueue, int] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(each.size for each in self.ranges)


def is_ours(source: Source) -> bool:
    return source.format == "rocketmq"


def measure(spark: "SparkSession", pipeline: Pipeline) -> Extent:
    """What the pipeline would read if it ran now; nothing of sources that are not ours.

    Raises:
        BolideError: the cluster cannot be asked.
    """
    if not is_ours(pipeline.source):
        return Extent()
    options = SourceOptions.of(pipeline.source.options)
    reached = find_reached(spark, pipeline.checkpoint)

    async def look(cluster: Cluster) -> Extent:
        queues = await find_queues(cluster, options)
        bounds = await cluster.bounds(queues)
        if reached is None:
            start = await cluster.resolve(options.start(default="latest"), queues)
        else:
            start = {queue: reached.offsets.get(queue, bounds[queue].oldest) for queue in queues}
        ranges = tuple(QueueRange(queue, start[queue], bounds[queue].end) for queue in queues)
        return Extent(ranges, None if reached is None else reached.batch, start)

    return ask(options.connection(), look, patience=_QUICKLY)
