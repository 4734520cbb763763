"""Logging to standard output or a rotating file, as text or JSON lines, configured by TOML.

    level = "INFO"                  # root level
    format = "text"                 # or "json"
    file = "logs/namesrv.log"       # absent: none
    console = false                 # standard output; the default without a file
    max_size = 104857600            # bytes before the file is rotated
    count = 10                      # rotated files kept
    label = "broker-a"              # added to each record; absent: none

    [levels]                        # of individual loggers
    "bolide.remoting" = "WARNING"

A thread of its own writes the records, so that a slow disk or terminal does not block callers.
"""

import atexit
import contextlib
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Hashable
from enum import StrEnum
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Annotated, Any

import msgspec

from bolide.errors import ConfigError
from bolide.private_files import FILE_MODE, make_directory

_ESCAPED = {
    code: chr(code).encode("unicode_escape").decode()
    for code in (*(set(range(32)) - {ord("\t")}), *range(127, 160), 0x2028, 0x2029)
}
"""Control characters and line ends of Unicode."""
_ESCAPED_IN_TRACEBACK = {code: text for code, text in _ESCAPED.items() if code != ord("\n")}
_ESCAPED_IN_JSON = {code: f"\\u{code:04x}" for code in (*range(127, 160), 0x2028, 0x2029)}
"""What encoders of JSON leave as it is."""


def one_line(text: str) -> str:
    """Escape control characters and line ends: text of a peer stays in its line."""
    return text.translate(_ESCAPED)


def plain_json(text: str) -> str:
    """Escape the control characters and line ends that a line of JSON may have."""
    return text.translate(_ESCAPED_IN_JSON)


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


class LogConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Levels, format and destination of logs."""

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
            ConfigError: the file cannot be read or a value is invalid.
        """
        import tomllib  # noqa: PLC0415  rarely needed

        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
            return msgspec.convert(values, cls, dec_hook=_decode_path)
        except (OSError, ValueError, msgspec.MsgspecError) as exc:
            raise ConfigError(f"cannot use the logging configuration {path}: {exc}") from exc

    def of(self, label: str) -> "LogConfig":
        """Return the config of one of several processes: two must not rotate the same file."""
        file = self.file and self.file.with_name(f"{self.file.stem}-{label}{self.file.suffix}")
        return msgspec.structs.replace(self, label=label, file=file)


log = logging.getLogger(__name__)

AUDIT_LOGGER = "bolide.audit"
"""Its level is INFO unless the configuration has another: a request may change the root level."""
CLIENT_LOGGER = "bolide.client"
"""Parent of the loggers of producers and consumers."""

_MOST_QUEUED = 10_000
_STOP_TIMEOUT = 2.0
"""Seconds for the writer thread to write the queued records at shutdown."""

_LOST = "%s log records were lost: they arrived faster than they could be written"

_writer: "_Writer | None" = None
_levels: list[str] = []


def configure(config: LogConfig, *, console: IO[str] | None = None) -> None:
    """Configure logging of the process; may be called again to change it.

    Args:
        config: levels, format and destination.
        console: the console stream, if not standard output.
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
    for name in _levels:  # of the previous config
        logging.getLogger(name).setLevel(logging.NOTSET)
    logging.getLogger(AUDIT_LOGGER).setLevel(LogLevel.INFO)
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
    """Set the level of the clients' logs and, if a file is given, write them only there.

    For programs that configure the rest of their logging themselves. A second call replaces the
    first.

    Raises:
        ConfigError: the level is unknown, or the file cannot be written.
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


def flush() -> None:
    """Wait a limited time until the records queued so far are written. Blocks."""
    if _writer is not None:
        _writer.flush()


def shutdown() -> None:
    """Write the queued records and stop; for the end of the process."""
    global _writer  # noqa: PLW0603  as above
    if _writer is not None:
        _writer.stop()
        _writer = None


class _Writer(threading.Thread):
    """Writes queued records. A daemon thread, because a thread stuck in a write cannot be ended."""

    def __init__(self, handlers: list[logging.Handler]) -> None:
        super().__init__(name="log-writer", daemon=True)
        self.queue: queue.Queue[logging.LogRecord | threading.Event | None] = queue.Queue(
            maxsize=_MOST_QUEUED
        )
        self.lost = 0
        self._handlers = handlers
        self.start()

    def run(self) -> None:
        while (record := self.queue.get()) is not None:
            if isinstance(record, threading.Event):
                record.set()
                continue
            self._write(record)
            if self.lost:
                lost, self.lost = self.lost, 0
                self._write(log.makeRecord(__name__, logging.WARNING, "", 0, _LOST, (lost,), None))

    def flush(self) -> None:
        written = threading.Event()
        with contextlib.suppress(queue.Full):
            self.queue.put(written, timeout=_STOP_TIMEOUT)
            written.wait(_STOP_TIMEOUT)

    def stop(self) -> None:
        """Wait a limited time until the queued records are written. Blocks."""
        with contextlib.suppress(queue.Full):
            self.queue.put(None, timeout=_STOP_TIMEOUT)
        self.join(_STOP_TIMEOUT)
        if not self.is_alive():
            for handler in self._handlers:
                handler.close()

    def _write(self, record: logging.LogRecord) -> None:
        for handler in self._handlers:
            handler.handle(record)


class _QueueHandler(logging.Handler):
    """Queues records for the writer; if the queue is full, records are dropped and counted."""

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
    from logging.handlers import RotatingFileHandler  # noqa: PLC0415  rarely needed

    class PrivateFileHandler(RotatingFileHandler):
        def _open(self) -> TextIOWrapper:
            opener = partial(os.open, mode=FILE_MODE)
            return open(self.baseFilename, "a", encoding="utf-8", opener=opener)

    try:
        make_directory(file.parent)
        return PrivateFileHandler(
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
        # Text from a peer may contain line ends, which must not start new log lines, and control
        # sequences of a terminal.
        line = one_line(super().formatMessage(record))
        return f"[{self.label}] {line}" if self.label else line

    def formatException(self, ei: Any) -> str:  # noqa: N802
        # Indented, since the text of an exception may look like a line of the log.
        text = super().formatException(ei).translate(_ESCAPED_IN_TRACEBACK)
        return "\n".join(f"  {line}" for line in text.split("\n"))

    def format(self, record: logging.LogRecord) -> str:
        # A file name may contain bytes that are not UTF-8; the record must not be lost.
        return super().format(record).encode(errors="backslashreplace").decode()


class _JsonFormatter(_TextFormatter):
    """One JSON object per line: time, level, logger, message, and the traceback if any."""

    def format(self, record: logging.LogRecord) -> str:
        import json  # noqa: PLC0415  rarely needed

        entry = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self.label:
            entry["label"] = self.label
        if record.exc_info:
            entry["error"] = logging.Formatter.formatException(self, record.exc_info)
        line = plain_json(json.dumps(entry, ensure_ascii=False))
        return line.encode(errors="backslashreplace").decode()


def _decode_path(kind: type, value: Any) -> Any:
    return kind(value)


class ThrottledLog:
    """Rate-limits warnings: one line per key and minute, with the number of suppressed ones."""

    def __init__(
        self,
        log: logging.Logger,
        every: float = 60.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._every = every
        self._now = now
        self._last_logged: dict[Hashable, float] = {}
        self._suppressed: dict[Hashable, int] = {}

    def warning(
        self, key: Hashable, text: str, *args: object, exc_info: BaseException | None = None
    ) -> None:
        now = self._now()
        last = self._last_logged.get(key)
        if last is not None and now - last < self._every:
            self._suppressed[key] = self._suppressed.get(key, 0) + 1
            self._log.debug(text, *args)
            return
        self._last_logged[key] = now
        if suppressed := self._suppressed.pop(key, 0):
            text, args = f"{text} (suppressed %d times since the last line)", (*args, suppressed)
        self._log.warning(text, *args, exc_info=exc_info)

    def forget(self, key: Hashable) -> None:
        """Reset a key once the problem is over, so that its next occurrence is logged at once."""
        self._last_logged.pop(key, None)
        self._suppressed.pop(key, None)
