"""Load the settings of a broker from all sources, and print them.

Settings are handled as text here, keyed by RocketMQ's names; `load_settings` parses them.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from bolide.broker.settings.config import ALL_IGNORED, BrokerConfig
from bolide.config import from_environment, options_of, read_file, secret_keys, to_texts
from bolide.logs import LogLevel
from bolide.remoting.settings import find_file
from bolide.remoting.tls_settings import DEFAULT_TLS_FILE, tls_texts
from bolide.store.config import StoreConfig

_ENVIRONMENT = "BOLIDE_BROKER"
_CONFIG_PATH = "brokerConfigPath"
_IMPORTANT = (
    "namesrvAddr", "brokerIP1", "brokerName", "brokerClusterName", "brokerId", "brokerRole",
    "listenPort", "autoCreateTopicEnable", "autoCreateSubscriptionGroup", "storePathRootDir",
    "storePathCommitLog", "flushDiskType", "flushIntervalCommitLog", "fileReservedTime",
    "deleteWhen", "maxMessageSize",
)  # fmt: skip


def file_texts(file: Path | None, chosen: Mapping[str, str], *, quiet: bool) -> dict[str, str]:
    """Settings of the given file, otherwise of the file that stores changes at run time."""
    if file is None:
        file = _changes_file(chosen)
        if not file.exists():
            return {_CONFIG_PATH: str(file)}
    file = find_file(file, os.environ.get("ROCKETMQ_HOME"))
    texts = read_file(file, secret_keys(BrokerConfig))
    if not quiet:
        print(f"load config properties file OK, {file}")
    texts.setdefault(_CONFIG_PATH, str(file))
    return texts


def worker_texts(file: Path | None, chosen: Mapping[str, str]) -> dict[str, str]:
    """Settings of the file that all workers share, overridden by the changes of this worker."""
    shared = {} if file is None else file_texts(file, chosen, quiet=True)
    return shared | file_texts(None, chosen, quiet=True)


def all_texts(file: dict[str, str], level: LogLevel, chosen: dict[str, str]) -> dict[str, str]:
    """Settings of tls.properties, file, environment and command line, in increasing priority."""
    texts = file | _environment() | chosen
    named = texts.pop("tls.config.file", "").strip()
    if named or DEFAULT_TLS_FILE.exists():
        texts = tls_texts(Path(named) if named else DEFAULT_TLS_FILE) | texts
    return {"logLevel": level} | texts


def print_settings(loaded: tuple[BrokerConfig, StoreConfig]) -> None:
    for config in loaded:
        shown = to_texts(config)
        for key, found in options_of(type(config)).items():
            # The value of a secret is not printed, only its commented key.
            print(f"# {found.doc}\n{'#' if found.secret else ''}{key}={shown.get(key, '')}")
    print("\n# Known to RocketMQ, without effect here:")
    for key, item in ALL_IGNORED.items():
        print(f"# {key}={item.default}  ({item.reason})")


def print_important(loaded: tuple[BrokerConfig, StoreConfig]) -> None:
    broker, store = loaded
    shown = to_texts(store) | to_texts(broker)
    for key in _IMPORTANT:
        print(f"{key}={shown.get(key, '')}")


def _environment() -> dict[str, str]:
    kinds = (BrokerConfig, StoreConfig)
    return {k: v for kind in kinds for k, v in from_environment(kind, _ENVIRONMENT).items()}


def _changes_file(chosen: Mapping[str, str]) -> Path:
    """The file that stores changes at run time if no file is given."""
    given = _environment() | dict(chosen)
    if _CONFIG_PATH in given:
        return Path(given[_CONFIG_PATH])
    root = given.get("storePathRootDir", "").strip()
    return (Path(root) if root else StoreConfig().root) / "config" / "broker.properties"
