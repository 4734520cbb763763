"""Logs: to standard output or a rotating file, as text or JSON lines, configured by one TOML file.

    level = "INFO"                  # root level
    format = "text"                 # or "json"
    file = "logs/namesrv.log"       # absent: none
    console = false                 # standard output; by default if there is no file
    max_size = 104857600            # bytes before the file is rotated
    count = 10                      # rotated files kept
    label = "broker-a"              # stands in each record; absent: none

    [levels]                        # of single loggers
    "bolide.remoting" = "WARNING"

Records are written by a thread of their own, so that a slow disk or terminal stops nobody.
"""

import atexit
import contextlib
import logging
import queue
import sys
import threading
import time
from collections.abc import Callable, Hashable
from enum import StrEnum
from pathlib import Path
from typing import IO, Annotated, Any

import msgspec

from bolide.errors import ConfigError


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


class LogConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is logged, how and where."""

    level: LogLevel = LogLevel.INFO
    format: LogFormat = LogFormat.TEXT
    file: Path | None = None
    console: bool | None = None
    max_size: Annotated[int, msgspec.Meta(ge=4096)] = 100 * 1024 * 1024
    count: Annotated[int, msgspec.Meta(ge=1)] = 10
    label: str = ""
    levels: dict[str, LogLevel] = {}

    @classmethod
    def read(cls, path: Path) -> "LogConfig":
        """Load a TOML file.

        Raises:
            ConfigError: it cannot be read or a value is wrong.
        """
        import tomllib  # noqa: PLC0415  most have no such file

        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
            return msgspec.convert(values, cls, dec_hook=_decode_path)
        except (OSError, ValueError, msgspec.MsgspecError) as exc:
            raise ConfigError(f"cannot use the logging configuration {path}: {exc}") from exc

    def of(self, label: str) -> "LogConfig":
        """That of one of several processes: two must not rotate the same file."""
        file = self.file and self.file.with_name(f"{self.file.stem}-{label}{self.file.suffix}")
        return msgspec.structs.replace(self, label=label, file=file)


log = logging.getLogger(__name__)

CLIENT_LOGGER = "bolide.client"
"""Above the loggers of producers and consumers."""

_MOST_WAITING = 10_000
_LAST_WORDS = 2.0
"""Seconds that the writing thread gets at the end to write what is queued."""

_LOST = "%s log records were lost: they came faster than they could be written"

_writer: "_Writer | None" = None
_levels: list[str] = []


def configure(config: LogConfig, *, console: IO[str] | None = None) -> None:
    """Send all logs where the config says; may be called again to change it.

    Args:
        config: what is logged, how and where.
        console: where the console is, if not standard output.
    """
    global _writer
    handlers = _handlers(config, console or sys.stdout)
    previous, _writer = _writer, _Writer(handlers)
    logging.root.handlers[:] = [_QueueHandler(_writer)]
    if previous is None:
        atexit.register(shutdown)
    else:
        previous.stop()
    set_level(config.level)
    for name in _levels:  # of the config before
        logging.getLogger(name).setLevel(logging.NOTSET)
    _levels[:] = config.levels
    for name, level in config.levels.items():
        logging.getLogger(name).setLevel(level)


def set_level(level: LogLevel) -> None:
    """Change the root level at run time."""
    logging.root.setLevel(level)


def log_client(
    level: LogLevel | str = LogLevel.INFO,
    file: Path | str | None = None,
    *,
    name: str = CLIENT_LOGGER,
) -> None:
    """Set the level of the clients' logs and, if a file is given, have them written there only.

    For programs that leave the rest of their logging as it is. Called again, it replaces what it
    said before.

    Raises:
        ConfigError: there is no such level, or the file cannot be written.
    """
    config = _client_config(level, file)
    logger = logging.getLogger(name)
    handlers = _handlers(config, sys.stdout) if config.file is not None else []
    for old in [each for each in logger.handlers if isinstance(each, _QueueHandler)]:
        logger.removeHandler(old)
        old.writer.stop()
    logger.setLevel(config.level)
    logger.propagate = not handlers
    if handlers:
        writer = _Writer(handlers)
        logger.addHandler(_QueueHandler(writer))
        atexit.register(writer.stop)


def _client_config(level: LogLevel | str, file: Path | str | None) -> LogConfig:
    try:
        known = LogLevel(level.upper())
    except ValueError as exc:
        raise ConfigError(f"level={level!r}: must be one of {', '.join(LogLevel)}") from exc
    return LogConfig(level=known, file=None if file is None else Path(file))


def shutdown() -> None:
    """Write out what is queued; for the end of the process."""
    global _writer  # noqa: PLW0603  as above
    if _writer is not None:
        _writer.stop()
        _writer = None


class _Writer(threading.Thread):
    """Writes what is queued; a daemon, for nobody can end a thread that is stuck in a write."""

    def __init__(self, handlers: list[logging.Handler]) -> None:
        super().__init__(name="log-writer", daemon=True)
        self.queue: queue.Queue[logging.LogRecord | None] = queue.Queue(maxsize=_MOST_WAITING)
        self.lost = 0
        self._handlers = handlers
        self.start()

    def run(self) -> None:
        while (record := self.queue.get()) is not None:
            self._write(record)
            if self.lost:
                lost, self.lost = self.lost, 0
                self._write(log.makeRecord(__name__, logging.WARNING, "", 0, _LOST, (lost,), None))

    def stop(self) -> None:
        """Let it write what is queued, for a while. Blocks."""
        with contextlib.suppress(queue.Full):
            self.queue.put(None, timeout=_LAST_WORDS)
        self.join(_LAST_WORDS)
        if not self.is_alive():
            for handler in self._handlers:
                handler.close()

    def _write(self, record: logging.LogRecord) -> None:
        for handler in self._handlers:
            handler.handle(record)


class _QueueHandler(logging.Handler):
    """Hands records to the writer; while that is far behind, records are lost, not kept."""

    def __init__(self, writer: _Writer) -> None:
        super().__init__()
        self.writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        record.msg, record.args = record.getMessage(), None
        try:
            self.writer.queue.put_nowait(record)
        except queue.Full:
            self.writer.lost += 1


def _handlers(config: LogConfig, console: IO[str]) -> list[logging.Handler]:
    handlers: list[logging.Handler] = []
    if config.file is not None:
        handlers.append(_file_handler(config, config.file))
    if config.console or (config.console is None and config.file is None):
        handlers.append(logging.StreamHandler(console))
    is_json = config.format is LogFormat.JSON
    formatter = (_JsonFormatter if is_json else _TextFormatter)(config.label)
    for handler in handlers:
        handler.setFormatter(formatter)
    return handlers


def _file_handler(config: LogConfig, file: Path) -> logging.Handler:
    from logging.handlers import RotatingFileHandler  # noqa: PLC0415  few log to files

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        return RotatingFileHandler(
            file, maxBytes=config.max_size, backupCount=config.count, encoding="utf-8"
        )
    except OSError as exc:
        raise ConfigError(f"cannot log to {file}: {exc}") from exc


class _TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z INFO bolide.namesrv.server message`, `[label]` before it."""

    default_msec_format = "%s.%03dZ"

    def __init__(self, label: str) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")
        self.label = label
        self.default_time_format = "%Y-%m-%dT%H:%M:%S"
        self.converter = time.gmtime

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        return super().formatTime(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        # A peer's name may hold line ends: they must not make lines of their own.
        line = super().formatMessage(record).replace("\r", "\\r").replace("\n", "\\n")
        return f"[{self.label}] {line}" if self.label else line

    def format(self, record: logging.LogRecord) -> str:
        # A file name may hold bytes that are no text; they must not lose the record.
        return super().format(record).encode(errors="backslashreplace").decode()


class _JsonFormatter(_TextFormatter):
    """One JSON object a line: time, level, logger, message, and the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        import json  # noqa: PLC0415  most logs are text

        entry = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self.label:
            entry["label"] = self.label
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False).encode(errors="backslashreplace").decode()


def _decode_path(kind: type, value: Any) -> Any:
    return kind(value)


class ThrottledLog:
    """Lets one line for each key through a minute, and says how many it kept back."""

    def __init__(
        self,
        log: logging.Logger,
        every: float = 60.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._every = every
        self._now = now
        self._said: dict[Hashable, float] = {}
        self._kept: dict[Hashable, int] = {}

    def warning(
        self, key: Hashable, text: str, *args: object, exc_info: BaseException | None = None
    ) -> None:
        now = self._now()
        last = self._said.get(key)
        if last is not None and now - last < self._every:
            self._kept[key] = self._kept.get(key, 0) + 1
            self._log.debug(text, *args)
            return
        self._said[key] = now
        if kept := self._kept.pop(key, 0):
            text, args = f"{text} (and %d times since it was said last)", (*args, kept)
        self._log.warning(text, *args, exc_info=exc_info)

    def forget(self, key: Hashable) -> None:
        """The trouble is over: say it again when it comes back."""
        self._said.pop(key, None)
        self._kept.pop(key, None)
