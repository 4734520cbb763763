"""Logging of the commands that serve."""

import logging
import os
from pathlib import Path
from typing import IO

from bolide import logs
from bolide.errors import ConfigError
from bolide.logs import LogConfig, LogLevel

log = logging.getLogger(__name__)


def find_log_config(file: Path | None) -> Path | None:
    if file is None and (home := os.environ.get("ROCKETMQ_HOME")):
        in_home = Path(home) / "conf" / "logging.toml"
        return in_home if in_home.exists() else None
    return file


def start_logging(file: Path | None, console: IO[str], label: str = "") -> LogLevel:
    """Configure the logs; returns the root level, which settings may change.

    Args:
        label: which of several processes with one configuration this is.
    """
    config = _read(file, label) if file else LogConfig(label=label)
    logs.configure(config, console=console)
    return config.level


def reload_logs(file: Path | None, label: str = "") -> None:
    """What SIGHUP asks for."""
    if file is None:
        log.info("there is no logging configuration to read again")
        return
    try:
        logs.configure(_read(file, label))
    except ConfigError as exc:
        log.warning("the logs stay as they are: %s", exc)
    else:
        log.info("the logs go by %s, read again", file)


def _read(file: Path, label: str) -> LogConfig:
    config = LogConfig.read(file)
    return config.of(label) if label else config
