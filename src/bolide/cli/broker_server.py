"""Settings of a broker from their sources, and its run until it is told to stop."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from bolide import logs
from bolide.broker.app import Broker
from bolide.broker.config import ALL_IGNORED, BrokerConfig, BrokerRole, load_settings
from bolide.cli.log_setup import reload_logs
from bolide.config import from_environment, options_of, read_file, to_texts
from bolide.logs import LogLevel
from bolide.remoting.event_loop import (
    keep_freed_memory,
    on_hangup,
    run,
    spare_collections,
    until_stopped,
)
from bolide.remoting.settings import DEFAULT_TLS_FILE, find_file, tls_texts
from bolide.store.config import FlushMode, StoreConfig

_ENVIRONMENT = "BOLIDE_BROKER"
_CONFIG_PATH = "brokerConfigPath"
_IMPORTANT = (
    "namesrvAddr", "brokerIP1", "brokerName", "brokerClusterName", "brokerId", "brokerRole",
    "listenPort", "autoCreateTopicEnable", "autoCreateSubscriptionGroup", "storePathRootDir",
    "storePathCommitLog", "flushDiskType", "flushIntervalCommitLog", "fileReservedTime",
    "deleteWhen", "maxMessageSize",
)  # fmt: skip


def file_texts(file: Path | None, chosen: Mapping[str, str], *, quiet: bool) -> dict[str, str]:
    """Settings of the file named, else of the one that changes at run time went to."""
    if file is None:
        file = _changes_file(chosen)
        if not file.exists():
            return {_CONFIG_PATH: str(file)}
    file = find_file(file, os.environ.get("ROCKETMQ_HOME"))
    texts = read_file(file)
    if not quiet:
        print(f"load config properties file OK, {file}")
    texts.setdefault(_CONFIG_PATH, str(file))
    return texts


def all_texts(file: dict[str, str], level: LogLevel, chosen: dict[str, str]) -> dict[str, str]:
    """Settings of tls.properties, file, environment and command line; later ones win."""
    texts = file | _environment() | chosen
    named = texts.pop("tls.config.file", "").strip()
    if named or DEFAULT_TLS_FILE.exists():
        texts = tls_texts(Path(named) if named else DEFAULT_TLS_FILE) | texts
    return {"logLevel": level} | texts


def print_settings(texts: dict[str, str], *, strict: bool) -> None:
    for config in load_settings(texts, strict=strict):
        shown = to_texts(config)
        for key, found in options_of(type(config)).items():
            # A secret stays one: its line is there to be filled in.
            print(f"# {found.doc}\n{'#' if found.secret else ''}{key}={shown.get(key, '')}")
    print("\n# Known to RocketMQ, without effect here:")
    for key, item in ALL_IGNORED.items():
        print(f"# {key}={item.default}  ({item.reason})")


def print_important(texts: dict[str, str], *, strict: bool) -> None:
    broker, store = load_settings(texts, strict=strict)
    shown = to_texts(store) | to_texts(broker)
    for key in _IMPORTANT:
        print(f"{key}={shown.get(key, '')}")


def serve(texts: dict[str, str], log_file: Path | None, *, strict: bool) -> None:
    """Run a broker until it is told to stop."""
    settings = load_settings(texts, strict=strict)
    try:
        run(_run(make_broker(settings, texts), log_file))
    finally:
        logs.shutdown()


def make_broker(settings: tuple[BrokerConfig, StoreConfig], texts: Mapping[str, str]) -> Broker:
    """The broker of some settings; those without effect are shown to who asks for them."""
    config, store = settings
    ignored = {key: text for key, text in texts.items() if key in ALL_IGNORED}
    return Broker(config, store, ignored=ignored)


async def _run(broker: Broker, log_file: Path | None) -> None:
    logs.set_level(broker.config.value.log_level)
    on_hangup(lambda: reload_logs(log_file))
    await until_stopped(_serve(broker))
    print(f"The broker[{broker.config.value.broker_name}] stopped.", flush=True)


async def _serve(broker: Broker) -> None:
    async with broker:
        spare_collections()
        keep_freed_memory()
        announce(broker)
        await asyncio.Event().wait()


def announce(broker: Broker) -> None:
    """Say that it serves: RocketMQ's line, for which scripts wait, and what an answer is worth."""
    config = broker.config.value
    servers = ";".join(config.name_servers)
    named = f" and name server is {servers}" if servers else ", no NameServer (give it with -n)"
    print(meaning_of_an_answer(config, broker.store_config.value))
    print(
        f"The broker[{config.broker_name}, {broker.address}] boot success."
        f" serializeType=JSON{named}",
        flush=True,
    )


def meaning_of_an_answer(config: BrokerConfig, store: StoreConfig) -> str:
    """What it means that a send was acknowledged, and how to make it mean more."""
    alone = (
        " brokerRole=SYNC_MASTER changes nothing yet: there are no replicas."
        if config.broker_role is BrokerRole.SYNC_MASTER
        else ""
    )
    if store.flush_mode is FlushMode.SYNC:
        return f"An acknowledged message is on this disk: it survives a power cut.{alone}"
    return (
        "An acknowledged message is in this machine's memory: it survives a crash of the broker,"
        f" not a power cut; flushDiskType=SYNC_FLUSH has it on the disk first.{alone}"
    )


def _environment() -> dict[str, str]:
    kinds = (BrokerConfig, StoreConfig)
    return {k: v for kind in kinds for k, v in from_environment(kind, _ENVIRONMENT).items()}


def _changes_file(chosen: Mapping[str, str]) -> Path:
    """Where changes at run time went if no file was named."""
    given = _environment() | dict(chosen)
    if _CONFIG_PATH in given:
        return Path(given[_CONFIG_PATH])
    root = given.get("storePathRootDir", "").strip()
    return (Path(root) if root else StoreConfig().root) / "config" / "broker.properties"
