"""What a server process needs besides its server: logging, and the limit of open files."""

import logging
import os
import resource
from contextlib import suppress
from pathlib import Path
from typing import IO

from bolide import logs
from bolide.errors import ConfigError
from bolide.logs import LogConfig, LogLevel

log = logging.getLogger(__name__)

_MAX_FILES = 1 << 20
"""Open files that a server may need at most; a higher limit costs memory in child processes."""


def find_log_config(file: Path | None) -> Path | None:
    if file is None and (home := os.environ.get("ROCKETMQ_HOME")):
        in_home = Path(home) / "conf" / "logging.toml"
        return in_home if in_home.exists() else None
    return file


def raise_file_limit() -> None:
    """Let the process open as many files as the system allows: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # macOS refuses more than its own limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def start_logging(file: Path | None, console: IO[str], label: str = "") -> LogLevel:
    """Configure the logs; returns the root level, which settings may change.

    Args:
        label: name of this process among several that share the configuration.
    """
    config = _read_log_config(file, label) if file else LogConfig(label=label)
    logs.configure(config, console=console)
    return config.level


def reload_logs(file: Path | None, label: str = "") -> None:
    """Read the logging configuration again, on SIGHUP."""
    if file is None:
        log.info("there is no logging configuration to reload")
        return
    try:
        logs.configure(_read_log_config(file, label))
    except ConfigError as exc:
        log.warning("the logs stay as they are: %s", exc)
    else:
        log.info("logging configuration reloaded from %s", file)


def _read_log_config(file: Path, label: str) -> LogConfig:
    config = LogConfig.read(file)
    return config.of(label) if label else config
