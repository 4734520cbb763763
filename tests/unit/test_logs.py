"""Where records go, in which form, and that they get there."""

import io
import json
import logging
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bolide import logs
from bolide.errors import ConfigError
from bolide.logs import LogConfig, LogFormat, LogLevel

log = logging.getLogger("bolide.test")


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    logs.configure(LogConfig())  # forgets the levels of single loggers
    logs.shutdown()
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


def written(file: Path) -> list[str]:
    """The lines of a log file once everything queued is in it."""
    logs.shutdown()
    return file.read_text(encoding="utf-8").splitlines()


def test_defaults_are_text_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogConfig())
    log.info("hello %s", "world")
    log.debug("not this")
    logs.shutdown()
    line = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO bolide.test hello world\n"
    assert re.fullmatch(line, capsys.readouterr().out)


def test_a_flush_waits_for_what_was_logged_before(monkeypatch: pytest.MonkeyPatch) -> None:
    console = io.StringIO()
    logs.configure(LogConfig(), console=console)
    slow = threading.Event()
    write = logs._Writer._write

    def write_slowly(writer: logs._Writer, record: logging.LogRecord) -> None:
        slow.wait(0.05)
        write(writer, record)

    monkeypatch.setattr(logs._Writer, "_write", write_slowly)
    log.info("first")
    logs.flush()
    assert "first" in console.getvalue()


def test_a_log_file_gets_its_directory(tmp_path: Path) -> None:
    file = tmp_path / "logs" / "namesrv.log"
    logs.configure(LogConfig(file=file))
    log.warning("ü %d", 1)
    (line,) = written(file)
    assert line.endswith("WARNING bolide.test ü 1")


@pytest.mark.parametrize(
    ("form", "beginning"), [(LogFormat.TEXT, "[worker-1] 2"), (LogFormat.JSON, '{"time": "2')]
)
def test_each_of_several_processes_has_its_file_and_its_label(
    tmp_path: Path, form: LogFormat, beginning: str
) -> None:
    logs.configure(LogConfig(file=tmp_path / "broker.log", format=form).of("worker-1"))
    log.info("hello")
    (line,) = written(tmp_path / "broker-worker-1.log")
    assert line.startswith(beginning)
    assert "worker-1" in line


def test_json_lines_hold_message_logger_and_traceback(tmp_path: Path) -> None:
    logs.configure(LogConfig(file=tmp_path / "log", format=LogFormat.JSON))
    log.error("failed %s", "here", exc_info=ValueError("reason\nin two lines"))
    (line,) = written(tmp_path / "log")
    entry = json.loads(line)
    assert entry.pop("time").endswith("Z")
    assert entry == {
        "level": "ERROR",
        "logger": "bolide.test",
        "message": "failed here",
        "error": "ValueError: reason\nin two lines",
    }


def test_text_lines_are_followed_by_the_traceback(tmp_path: Path) -> None:
    logs.configure(LogConfig(file=tmp_path / "log"))
    log.error("failed", exc_info=ValueError("reason"))
    log.error("failed", exc_info=ValueError("reason\n2026 INFO bolide.audit forged\x1b[2J\x85x"))
    lines = written(tmp_path / "log")
    assert [line for line in lines if not line.startswith("20")] == [
        "  ValueError: reason",
        "  ValueError: reason",
        r"  2026 INFO bolide.audit forged\x1b[2J\x85x",
    ]


def test_the_audit_is_logged_at_every_root_level(tmp_path: Path) -> None:
    logs.configure(LogConfig(file=tmp_path / "log"))
    logs.set_level(LogLevel.ERROR)
    log.info("not this")
    logging.getLogger(logs.AUDIT_LOGGER).info("somebody changed something")
    assert [line.split(" ", 3)[3] for line in written(tmp_path / "log")] == [
        "somebody changed something"
    ]
    logs.configure(LogConfig(file=tmp_path / "other", levels={logs.AUDIT_LOGGER: LogLevel.ERROR}))
    logging.getLogger(logs.AUDIT_LOGGER).info("a file may ask for less")
    assert written(tmp_path / "other") == []


def test_a_line_of_json_has_no_control_characters(tmp_path: Path) -> None:
    logs.configure(LogConfig(file=tmp_path / "log", format=LogFormat.JSON))
    log.info("a\x9bb\u2028c")
    (line,) = written(tmp_path / "log")
    assert r"a\u009bb\u2028c" in line
    assert json.loads(line)["message"] == "a\x9bb\u2028c"


def test_text_of_a_peer_starts_no_line_and_controls_no_terminal(tmp_path: Path) -> None:
    logs.configure(LogConfig(file=tmp_path / "log"))
    log.info("group %s", "a\r\nb\x85c\u2028d\x0be\x1b[2Jf\x00g")
    (line,) = written(tmp_path / "log")
    assert line.endswith(r"group a\r\nb\x85c\u2028d\x0be\x1b[2Jf\x00g")


@pytest.mark.parametrize("form", LogFormat)
def test_a_record_that_cannot_be_encoded_is_written_all_the_same(
    tmp_path: Path, form: LogFormat
) -> None:
    logs.configure(LogConfig(file=tmp_path / "log", format=form))
    log.info("file %s", "\udcff")
    (line,) = written(tmp_path / "log")
    assert "\\udcff" in line


def test_a_full_file_is_rotated_and_the_oldest_goes(tmp_path: Path) -> None:
    logs.configure(LogConfig(file=tmp_path / "log", max_size=200, count=2))
    for number in range(20):
        log.info("a line of some length, number %d", number)
    assert "number 19" in written(tmp_path / "log")[-1]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["log", "log.1", "log.2"]


def test_levels_of_single_loggers_are_set(tmp_path: Path) -> None:
    levels = {"bolide.test": LogLevel.ERROR, "bolide.other": LogLevel.DEBUG}
    logs.configure(LogConfig(file=tmp_path / "log", level=LogLevel.WARNING, levels=levels))
    log.warning("not this")
    logging.getLogger("bolide.other").debug("this")
    logging.getLogger("bolide.third").info("not this")
    assert [line.split()[-1] for line in written(tmp_path / "log")] == ["this"]


def test_a_level_that_a_new_config_does_not_name_is_forgotten(tmp_path: Path) -> None:
    logs.configure(LogConfig(levels={"bolide.test": LogLevel.ERROR}))
    logs.configure(LogConfig(file=tmp_path / "log"))
    log.info("heard again")
    assert len(written(tmp_path / "log")) == 1


def test_configuring_again_moves_the_log_without_loss(tmp_path: Path) -> None:
    logs.configure(LogConfig(file=tmp_path / "first"))
    log.info("one")
    logs.configure(LogConfig(file=tmp_path / "second"))
    log.info("two")
    assert written(tmp_path / "second")[0].endswith("two")
    assert written(tmp_path / "first")[0].endswith("one")


def test_the_root_level_changes_at_run_time(tmp_path: Path) -> None:
    logs.configure(LogConfig(file=tmp_path / "log"))
    logs.set_level(LogLevel.DEBUG)
    log.debug("heard")
    logs.set_level(LogLevel.ERROR)
    log.warning("not heard")
    assert len(written(tmp_path / "log")) == 1


def test_a_file_that_cannot_be_opened_leaves_the_logs_as_they_are(tmp_path: Path) -> None:
    logs.configure(LogConfig(file=tmp_path / "log"))
    with pytest.raises(ConfigError, match="cannot log to"):
        logs.configure(LogConfig(file=tmp_path / "log" / "below-a-file"))
    log.info("still here")
    assert len(written(tmp_path / "log")) == 1


def test_shutdown_twice_is_harmless() -> None:
    logs.configure(LogConfig())
    logs.shutdown()
    logs.shutdown()


def test_a_config_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "logging.toml"
    file.write_text(
        'level = "DEBUG"\nformat = "json"\nfile = "logs/x.log"\nmax_size = 5000\ncount = 3\n'
        '[levels]\n"bolide.remoting" = "WARNING"\n'
    )
    assert LogConfig.read(file) == LogConfig(
        level=LogLevel.DEBUG,
        format=LogFormat.JSON,
        file=Path("logs/x.log"),
        max_size=5000,
        count=3,
        levels={"bolide.remoting": LogLevel.WARNING},
    )


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b'level = "LOUD"', "LOUD"),
        (b"count = 'many'", r"\$\.count"),
        (b"count = 0", r"\$\.count"),
        (b"max_size = -5", r"\$\.max_size"),
        (b"colour = 'red'", "colour"),
        (b"file = 7", r"\$\.file"),
        (b"level =", "Invalid value"),
        (b"\xff", "utf-8"),
    ],
)
def test_a_wrong_config_file_is_refused_by_name(tmp_path: Path, content: bytes, named: str) -> None:
    file = tmp_path / "logging.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=named) as caught:
        LogConfig.read(file)
    assert str(file) in str(caught.value)


def test_a_missing_config_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.toml"):
        LogConfig.read(tmp_path / "missing.toml")


class Stuck(io.StringIO):
    """A console that nobody reads, until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = threading.Event()
        self.reached = threading.Event()

    def write(self, text: str) -> int:
        self.reached.set()
        self.let_go.wait(10)
        return super().write(text)


def test_what_cannot_be_written_in_time_is_lost_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logs, "_MOST_QUEUED", 5)
    console = Stuck()
    logs.configure(LogConfig(), console=console)
    for number in range(20):
        log.info("number %s", number)
        console.reached.wait(10)  # the first is being written, so that five more find room
    console.let_go.set()
    logs.shutdown()
    printed = console.getvalue()
    assert "number 5" in printed
    assert "number 6" not in printed
    assert "14 log records were lost" in printed


def test_logs_go_elsewhere_though_the_old_console_is_stuck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_STOP_TIMEOUT", 0.05)
    console = Stuck()
    logs.configure(LogConfig(), console=console)
    log.info("to nobody")
    console.reached.wait(10)
    logs.configure(LogConfig(file=tmp_path / "log"))
    log.info("to the file")
    (line,) = written(tmp_path / "log")
    assert line.endswith("to the file")
    console.let_go.set()


@pytest.fixture
def client_logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger(logs.CLIENT_LOGGER)
    yield logger
    logs.log_client()
    logger.setLevel(logging.NOTSET)


def test_the_clients_logs_go_to_a_file_of_their_own(
    tmp_path: Path, client_logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "logs" / "client.log"
    logs.log_client("debug", file)
    logging.getLogger("bolide.client.producer.producer").debug("for the file")
    logs.log_client(LogLevel.WARNING)  # also writes out what is queued
    logging.getLogger("bolide.client.producer.producer").info("for nobody")
    logging.getLogger("bolide.client.producer.producer").warning("for all")
    (line,) = file.read_text(encoding="utf-8").splitlines()
    assert line.endswith("DEBUG bolide.client.producer.producer for the file")
    assert [record.getMessage() for record in caplog.records] == ["for all"]


def test_a_level_that_is_none_or_a_file_that_cannot_be_is_refused(
    tmp_path: Path, client_logger: logging.Logger
) -> None:
    with pytest.raises(ConfigError, match="level='loud': must be one of DEBUG"):
        logs.log_client("loud")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot log to"):
        logs.log_client(file=tmp_path / "file" / "log")
