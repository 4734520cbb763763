"""`bolide bench producer|batch|transaction|timer|consumer|latency|e2e`.

The client is imported when a command runs, so that other commands start faster.
"""

import os
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer

from bolide.cli import bench_options as opt
from bolide.cli.admin.credentials import ACCESS_KEY
from bolide.cli.command_line import FAILED, ExitOnError
from bolide.cli.tls_options import chosen_tls

if TYPE_CHECKING:
    from bolide.bench.report import Summary
    from bolide.bench.runner import Bounds
    from bolide.client.consumer.subscription import Expression
    from bolide.client.instance.settings import ClientArguments
    from bolide.client.producer.settings import ProducerArguments

_NAME_SERVER = "127.0.0.1:9876"
_TOPIC = "BenchmarkTest"
_ROUND_TRIP_TOPIC = "BenchmarkRoundTrip"
_ROUND_TRIP_GROUP = "benchmark_round_trip"
_ACCESS_KEY = "rocketmq2"
_SECRET_KEY = "12345678"  # noqa: S105  the well-known default of RocketMQ's benchmarks
_IN_FLIGHT = 1_000
_NEVER = 2**31 - 1
_ANY_LEVEL = 5

Emit = Callable[[str], None]


def producer(
    name_server: opt.NameServer = _NAME_SERVER,
    topic: opt.Topic = _TOPIC,
    senders: opt.Senders = 64,
    size: opt.Size = 128,
    keys: opt.Keys = "false",
    property_size: opt.PropertySize = 0,
    tag_count: opt.TagCount = 0,
    trace: opt.Trace = "false",
    acl: opt.Acl = "false",
    access_key: opt.AccessKey = _ACCESS_KEY,
    secret_key: opt.SecretKey = _SECRET_KEY,
    quantity: opt.Quantity = 0,
    duration: opt.Duration = 0.0,
    delay: opt.Delay = "false",
    delay_level: opt.DelayLevel = 1,
    asynchronous: opt.Async = "false",
    compress: opt.Compress = "false",
    compress_type: opt.CompressType = "ZLIB",
    compress_level: opt.CompressLevel = 5,
    compress_over: opt.CompressOver = 4096,
    interval: opt.Interval = 10_000,
    as_json: opt.Json = False,
) -> None:
    """Send messages one by one until Ctrl-C, --duration or -q."""
    from bolide.bench.producer import measure_sends  # noqa: PLC0415
    from bolide.bench.workload import Workload  # noqa: PLC0415

    load = Workload(
        topic=topic,
        senders=_IN_FLIGHT if asynchronous == "true" else senders,
        size=size,
        keys=keys == "true",
        property_size=property_size,
        tag_count=tag_count,
        delay_level=delay_level if delay == "true" else 0,
    )
    client = _producer(
        _client(name_server, acl, access_key, secret_key),
        compress_over if compress == "true" else _NEVER,
        compress_type,
        compress_level,
        trace=trace == "true",
    )
    bounds = _bounds(duration, quantity, interval)
    _run(lambda emit: measure_sends(load, bounds, emit, client), as_json=as_json)


def batch(
    name_server: opt.NameServer = _NAME_SERVER,
    topic: opt.Topic = _TOPIC,
    senders: opt.Senders = 64,
    size: opt.Size = 128,
    batch_size: opt.BatchSize = 16,
    keys: opt.Keys = "false",
    property_size: opt.PropertySize = 0,
    tag_count: opt.TagCount = 0,
    trace: opt.Trace = "false",
    acl: opt.Acl = "false",
    access_key: opt.AccessKey = _ACCESS_KEY,
    secret_key: opt.SecretKey = _SECRET_KEY,
    quantity: opt.Quantity = 0,
    duration: opt.Duration = 0.0,
    compress: opt.Compress = "false",
    compress_type: opt.CompressType = "ZLIB",
    compress_level: opt.CompressLevel = 5,
    compress_over: opt.CompressOver = 4096,
    interval: opt.Interval = 10_000,
    as_json: opt.Json = False,
) -> None:
    """Send messages in batches until Ctrl-C, --duration or -q."""
    from bolide.bench.producer import measure_sends  # noqa: PLC0415
    from bolide.bench.workload import Workload  # noqa: PLC0415

    load = Workload(
        topic=topic,
        senders=senders,
        size=size,
        keys=keys == "true",
        property_size=property_size,
        tag_count=tag_count,
    )
    client = _producer(
        _client(name_server, acl, access_key, secret_key),
        compress_over if compress == "true" else _NEVER,
        compress_type,
        compress_level,
        trace=trace == "true",
    )
    bounds = _bounds(duration, quantity, interval)
    _run(lambda emit: measure_sends(load, bounds, emit, client, batch=batch_size), as_json=as_json)


def transaction(
    name_server: opt.NameServer = _NAME_SERVER,
    topic: opt.Topic = _TOPIC,
    senders: opt.Senders = 32,
    size: opt.Size = 2048,
    send_rollback: opt.SendRollback = 0.0,
    send_unknown: opt.SendUnknown = 0.0,
    check_rollback: opt.CheckRollback = 0.0,
    check_unknown: opt.CheckUnknown = 0.0,
    acl: opt.Acl = "false",
    access_key: opt.AccessKey = _ACCESS_KEY,
    secret_key: opt.SecretKey = _SECRET_KEY,
    quantity: opt.Quantity = 0,
    duration: opt.Duration = 0.0,
    interval: opt.Interval = 10_000,
    as_json: opt.Json = False,
) -> None:
    """Send messages in transactions until Ctrl-C, --duration or -q."""
    from bolide.bench.transactions import Odds, measure_transactions  # noqa: PLC0415
    from bolide.bench.workload import Workload  # noqa: PLC0415

    load = Workload(topic=topic, senders=senders, size=size)
    at_send = Odds(rollback=send_rollback, unknown=send_unknown)
    at_check = Odds(rollback=check_rollback, unknown=check_unknown)
    client = _producer(
        _client(name_server, acl, access_key, secret_key), _NEVER, "ZLIB", _ANY_LEVEL
    )
    bounds = _bounds(duration, quantity, interval)
    _run(
        lambda emit: measure_transactions(load, at_send, at_check, bounds, emit, client),
        as_json=as_json,
    )


def timer(
    name_server: opt.NameServer = _NAME_SERVER,
    topic: opt.Topic = _ROUND_TRIP_TOPIC,
    senders: opt.Senders = 64,
    size: opt.StampedSize = 128,
    group: opt.Group = _ROUND_TRIP_GROUP,
    ahead: opt.Ahead = 5.0,
    over: opt.Over = 10.0,
    acl: opt.Acl = "false",
    access_key: opt.AccessKey = _ACCESS_KEY,
    secret_key: opt.SecretKey = _SECRET_KEY,
    quantity: opt.Quantity = 10_000,
    interval: opt.Interval = 10_000,
    as_json: opt.Json = False,
) -> None:
    """Send messages with random delivery times, and measure how late they are delivered."""
    from bolide.bench.timers import TimerLoad, measure_timers  # noqa: PLC0415

    load = TimerLoad(topic=topic, group=group, size=size, senders=senders, ahead=ahead, over=over)
    client = _client(name_server, acl, access_key, secret_key)
    bounds = _bounds(0.0, quantity or 10_000, interval)
    _run(lambda emit: measure_timers(load, bounds, emit, client), as_json=as_json)


def consumer(
    name_server: opt.NameServer = _NAME_SERVER,
    topic: opt.Topic = _TOPIC,
    listeners: opt.Listeners = 20,
    group: opt.Group = "benchmark_consumer",
    suffix: opt.Suffix = "false",
    filter_type: opt.Filter = None,
    expression: opt.Expression = None,
    fail_rate: opt.FailRate = 0.0,
    trace: opt.Trace = "false",
    acl: opt.Acl = "false",
    access_key: opt.AccessKey = _ACCESS_KEY,
    secret_key: opt.SecretKey = _SECRET_KEY,
    rebalance: opt.Rebalance = "true",
    count: opt.Count = 0,
    duration: opt.Duration = 0.0,
    interval: opt.Interval = 10_000,
    as_json: opt.Json = False,
) -> None:
    """Consume messages until Ctrl-C, --duration or --count."""
    from bolide.bench.consumer import ConsumeLoad, measure_consumption  # noqa: PLC0415

    with ExitOnError(OSError):
        wanted = _expression(filter_type, expression)
    what = ConsumeLoad(
        topic=topic,
        group=f"{group}_{int(time.time() * 1000) % 100}" if suffix == "true" else group,
        concurrency=listeners,
        expression=wanted,
        fail_rate=fail_rate,
        trace=trace == "true",
        rebalance="client" if rebalance == "true" else "broker",
    )
    client = _client(name_server, acl, access_key, secret_key)
    bounds = _bounds(duration, count, interval)
    _run(lambda emit: measure_consumption(what, bounds, emit, client), as_json=as_json)


def latency(
    name_server: opt.NameServer = _NAME_SERVER,
    topic: opt.Topic = _ROUND_TRIP_TOPIC,
    size: opt.StampedSize = 128,
    group: opt.Group = _ROUND_TRIP_GROUP,
    rate: opt.Rate = 1000.0,
    warm_up: opt.WarmUp = 2.0,
    acl: opt.Acl = "false",
    access_key: opt.AccessKey = _ACCESS_KEY,
    secret_key: opt.SecretKey = _SECRET_KEY,
    count: opt.Count = 0,
    duration: opt.Duration = 30.0,
    interval: opt.Interval = 10_000,
    as_json: opt.Json = False,
) -> None:
    """Send at a fixed rate, and measure the time from send to listener."""
    from bolide.bench.round_trip import LatencyLoad, measure_latency  # noqa: PLC0415

    load = LatencyLoad(topic=topic, group=group, size=size, rate=rate, warm_up=warm_up)
    client = _client(name_server, acl, access_key, secret_key)
    bounds = _bounds(duration, count, interval)
    _run(lambda emit: measure_latency(load, bounds, emit, client), as_json=as_json)


def e2e(
    name_server: opt.NameServer = _NAME_SERVER,
    topic: opt.Topic = _ROUND_TRIP_TOPIC,
    senders: opt.Senders = 64,
    size: opt.StampedSize = 128,
    group: opt.Group = _ROUND_TRIP_GROUP,
    acl: opt.Acl = "false",
    access_key: opt.AccessKey = _ACCESS_KEY,
    secret_key: opt.SecretKey = _SECRET_KEY,
    quantity: opt.Quantity = 0,
    duration: opt.Duration = 0.0,
    interval: opt.Interval = 10_000,
    as_json: opt.Json = False,
) -> None:
    """Send and consume as fast as possible in one process."""
    from bolide.bench.round_trip import measure_e2e  # noqa: PLC0415
    from bolide.bench.workload import Workload  # noqa: PLC0415

    load = Workload(topic=topic, senders=senders, size=size)
    client = _client(name_server, acl, access_key, secret_key)
    bounds = _bounds(duration, quantity, interval)
    _run(lambda emit: measure_e2e(load, group, bounds, emit, client), as_json=as_json)


def _run(measure: Callable[[Emit], Coroutine[Any, Any, "Summary"]], *, as_json: bool) -> None:
    """Run a benchmark and print its summary."""
    from bolide import logs  # noqa: PLC0415
    from bolide.remoting.event_loop import run  # noqa: PLC0415

    logs.configure(logs.LogConfig(level=logs.LogLevel.WARNING), console=sys.stderr)
    lines = sys.stderr if as_json else sys.stdout
    with ExitOnError(OSError):
        summary = run(measure(lambda text: print(text, file=lines, flush=True)))
    logs.shutdown()
    print(_document(summary) if as_json else summary.as_text())
    if summary.all_failed:
        raise typer.Exit(FAILED)


def _document(summary: "Summary") -> str:
    import json  # noqa: PLC0415

    return json.dumps(summary.as_json(), indent=1)


def _bounds(duration: float, count: int, interval_ms: int) -> "Bounds":
    from bolide.bench.runner import Bounds  # noqa: PLC0415

    return Bounds(duration=duration or None, count=count or None, interval=interval_ms / 1000)


def _client(name_server: str, acl: str, access_key: str, secret_key: str) -> "ClientArguments":
    client: ClientArguments = {"name_server": name_server, "tls": chosen_tls()}
    if acl == "true" or ACCESS_KEY in os.environ:
        client |= {"access_key": access_key, "secret_key": secret_key}
    return client


def _producer(
    client: "ClientArguments",
    compress_over: int,
    compress_type: str,
    compress_level: int,
    *,
    trace: bool = False,
) -> "ProducerArguments":
    from bolide.model.message import CompressionType  # noqa: PLC0415

    own: ProducerArguments = {
        "compress_over": compress_over,
        "compression": CompressionType[compress_type],
        "compression_level": compress_level,
        "trace": trace,
    }
    return cast("ProducerArguments", {**client, **own})


def _expression(filter_type: str | None, file: Path | None) -> "Expression":
    from bolide.client.consumer.subscription import Sql  # noqa: PLC0415

    if filter_type is None or file is None:
        return "*"
    text = file.read_text(encoding="utf-8").strip()
    return Sql(text) if filter_type == "SQL92" else text
