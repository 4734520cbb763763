"""Load that is not measured: brokers, JVMs above all, cost less once they have run for a while."""

import time

from benchmarks.brokers import APACHE, APACHE_4, Running
from benchmarks.compare.loads import Generated, Load
from benchmarks.compare.stages import Stage

# Of 64 senders, a JVM's cost falls for 15 to 20 s from its start; of another load for a few.
COLD = 4.0
"""How many times as long as others a broker is warmed up that has just started."""
_FIRST = Generated("send", 64, 1, "bench-warm-up")
_WORTH_WHILE = 0.5


def warm_up(load: Load, stage: Stage, broker: Running, seconds: float) -> None:
    """By 64 senders after its start, and by the load itself where that makes a difference."""
    if stage.is_cold(broker):
        _FIRST.prepare(stage, broker)
        _put(_FIRST, stage, broker, COLD * seconds)
    load.prepare(stage, broker)
    if load.warm_up:
        _put(load, stage, broker, seconds)


def _put(load: Load, stage: Stage, broker: Running, seconds: float) -> None:
    """Again where a round ends early for its messages: a JVM needs the time."""
    end = time.monotonic() + seconds
    load.round(stage, broker, seconds)
    while broker.name in (APACHE, APACHE_4) and (left := end - time.monotonic()) > _WORTH_WHILE:
        load.round(stage, broker, left)
