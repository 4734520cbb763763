"""Run a broker until a stop signal."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from bolide import logs
from bolide.broker.configured_hooks import load_hooks
from bolide.broker.gate import Gate
from bolide.broker.server import Broker, broker_access
from bolide.broker.settings.config import (
    ALL_IGNORED,
    VIP_PORT_DELTA,
    BrokerConfig,
    BrokerRole,
)
from bolide.cli.exposure import describe_encryption, describe_exposure, describe_metrics
from bolide.cli.process_setup import reload_logs
from bolide.cli.server_process import ServerProcess
from bolide.lifeline import Lifeline
from bolide.remoting.address import format_address
from bolide.remoting.event_loop import (
    freeze_gc,
    on_hangup,
    retain_freed_memory,
    run,
    until_stopped,
)
from bolide.replication.acknowledgement import Rule
from bolide.store.config import FlushMode, StoreConfig


def serve(broker: Broker, log_file: Path | None, lifeline: Lifeline) -> None:
    """Run a broker until a stop signal."""
    try:
        run(_run(broker, log_file, lifeline))
    finally:
        logs.shutdown()


def make_broker(settings: tuple[BrokerConfig, StoreConfig], texts: Mapping[str, str]) -> Broker:
    """Build the broker; settings without effect are kept for `getBrokerConfig`.

    Raises:
        ConfigError: a hook of `brokerHooks` cannot be loaded.
    """
    config, store = settings
    ignored = {key: text for key, text in texts.items() if key in ALL_IGNORED}
    gate = Gate(load_hooks(config.broker_hooks), broker_access(config, store))
    return Broker(config, store, ignored=ignored, gate=gate)


async def _run(broker: Broker, log_file: Path | None, lifeline: Lifeline) -> None:
    logs.set_level(broker.config.value.log_level)
    on_hangup(lambda: reload_logs(log_file, lifeline.label))
    config, data = broker.config.value, broker.store_config.value.root
    process = ServerProcess(
        "broker",
        config.broker_name,
        data=data,
        addresses=addresses_of(broker),
        lifeline=lifeline,
        is_worker=bool(lifeline) and config.workers > 1,
    )
    with process:
        await until_stopped(_serve(broker, process), process.report_stopping)
    logs.flush()  # so that this is the last line
    print(f"The broker[{broker.config.value.broker_name}] stopped.", flush=True)


async def _serve(broker: Broker, process: ServerProcess) -> None:
    async with broker:
        freeze_gc()
        retain_freed_memory()
        announce(broker)
        process.report_ready(addresses_of(broker))
        await asyncio.Event().wait()


def addresses_of(broker: Broker) -> list[str]:
    """What a broker listens on; the HA port of a slave is closed until it becomes master."""
    config = broker.config.value
    ports = [config.listen_port, config.listen_port + VIP_PORT_DELTA]
    if config.broker_role is not BrokerRole.SLAVE:
        ports.append(config.ha_listen_port)
    return [format_address((config.bind_address, port)) for port in ports]


def announce(broker: Broker) -> None:
    """Print RocketMQ's start-up line, for which scripts wait.

    Lines before it say what an acknowledgement means, who can connect and what protects the broker.
    """
    config = broker.config.value
    servers = ";".join(config.name_servers)
    named = f" and name server is {servers}" if servers else ", no NameServer (give it with -n)"
    print(meaning_of_an_answer(config, broker.store_config.value))
    print(describe_exposure(config, config.listen_port, "send and read"))
    print(describe_encryption(config))
    if broker.metrics.address is not None:
        print(describe_metrics(broker.metrics.address))
    print(
        f"The broker[{config.broker_name}, {broker.address}] boot success."
        f" serializeType=JSON{named}",
        flush=True,
    )


def meaning_of_an_answer(config: BrokerConfig, store: StoreConfig) -> str:
    """Sentences on the durability of an acknowledged message, and how to increase it."""
    if config.broker_role is BrokerRole.SLAVE:
        return "A slave: it copies the messages of its master and takes none from producers."
    replicas = _meaning_for_replicas(config)
    if store.flush_mode is FlushMode.SYNC:
        return f"An acknowledged message is on this disk: it survives a power cut.{replicas}"
    return (
        "An acknowledged message is in this machine's memory: it survives a crash of the broker,"
        f" not a power cut; flushDiskType=SYNC_FLUSH has it on the disk first.{replicas}"
    )


def _meaning_for_replicas(config: BrokerConfig) -> str:
    policy = config.ack_policy
    if config.broker_role is BrokerRole.ASYNC_MASTER and not config.enable_controller_mode:
        return ""
    if policy.rule is Rule.SYNC_STATE_SET:
        return " Every member of the sync-state set has it, too."
    if policy.rule is Rule.ONE_SLAVE:
        return " A slave has it, too."
    if policy.waits:
        return f" Slaves have it, too: {policy.copies} copies with the master's."
    return " Slaves may not have it yet: a failover can lose it."
