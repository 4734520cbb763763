"""Which records count as running servers: not those that a killed server left."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bolide.cli import run_records
from bolide.cli.run_records import (
    ELSEWHERE,
    PAUSED,
    RecordFile,
    RunRecord,
    record_of_this_process,
    running_servers,
    terminate,
)


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(run_records.DIRECTORY_VARIABLE, str(tmp_path / "deep" / "run"))
    return tmp_path / "deep" / "run"


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """Another process, as a server would be."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        yield process
        process.kill()


def record(**changes: Any) -> RunRecord:
    own = record_of_this_process("broker", "broker-a", Path("store"), ["127.0.0.1:10911"])
    return msgspec.structs.replace(own, **changes)


def record_of(process: subprocess.Popen[bytes]) -> RunRecord:
    stat = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return record(pid=process.pid, start_ticks=int(stat[19]))


def test_the_record_of_a_process_is_found_while_it_is_there(directory: Path) -> None:
    file = RecordFile(record())
    file.write()
    file.write(state="ready", addresses=("127.0.0.1:10912",))

    (found,) = running_servers()

    assert found.is_own
    assert (found.state, found.record.addresses) == ("ready", ("127.0.0.1:10912",))
    assert found.record.data == str(Path("store").absolute())
    modes = [path.stat().st_mode & 0o777 for path in (directory, *directory.iterdir())]
    assert modes == [0o700, 0o600]
    file.remove()
    assert running_servers() == []


@pytest.mark.parametrize(
    "change",
    [{"start_ticks": 1}, {"boot": "before"}, {"pid": 2**22 - 3}],
    ids=["another process has the id", "before the last boot", "no such process"],
)
def test_a_left_over_record_is_no_server_and_is_removed(
    directory: Path, change: dict[str, Any]
) -> None:
    RecordFile(record(**change)).write()
    assert len(list(directory.iterdir())) == 1

    assert running_servers() == []
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize(
    "change", [{"namespace": "pid:[1]"}, {"boot": "another", "host": "another"}]
)
def test_a_server_in_another_container_or_machine_is_shown_and_kept(
    directory: Path, change: dict[str, Any]
) -> None:
    RecordFile(record(**change)).write()

    (found,) = running_servers()
    assert (found.state, found.is_own) == (ELSEWHERE, False)
    assert len(list(directory.iterdir())) == 1


def test_a_record_of_another_user_does_not_make_a_process_an_own_server(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    RecordFile(record()).write()
    monkeypatch.setattr(os, "geteuid", lambda: 4711)

    assert [each.is_own for each in running_servers()] == [False]


def test_files_that_are_no_records_are_ignored(directory: Path) -> None:
    RecordFile(record()).write()
    (directory / "1-1.json").write_text("{")
    (directory / "2-2.json").write_text('{"pid": 1}')

    assert len(running_servers()) == 1


@pytest.mark.parametrize(
    "change",
    [{"started_at": 1e300}, {"started_at": -1.0}, {"pid": -1}, {"pid": 2**40}, {"start_ticks": -1}],
)
def test_records_with_odd_numbers_are_no_records(directory: Path, change: dict[str, Any]) -> None:
    RecordFile(record()).write()
    (path,) = directory.iterdir()
    odd = msgspec.json.decode(path.read_bytes()) | change
    path.write_bytes(msgspec.json.encode(odd))

    assert running_servers() == []


def test_pipes_and_links_in_the_directory_are_ignored(directory: Path, tmp_path: Path) -> None:
    file = RecordFile(record())
    directory.mkdir(parents=True)
    os.mkfifo(directory / "1-1.json")
    (tmp_path / "elsewhere").write_bytes(msgspec.json.encode(record()))
    (directory / "2-2.json").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(directory / f"{file.record.pid}-{file.record.start_ticks}.tmp")

    file.write()

    assert [each.record for each in running_servers()] == [file.record]


@pytest.mark.parametrize("mode", [0o777, 0o720])
def test_no_record_is_written_where_others_can_write(
    directory: Path, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    directory.mkdir(parents=True)
    directory.chmod(mode)

    RecordFile(record()).write()

    assert list(directory.iterdir()) == []
    assert f"other users can write to {directory}" in caplog.text


def test_a_path_that_is_no_text_does_not_stop_a_server(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    RecordFile(record(data="\udcff")).write()
    assert [each.levelname for each in caplog.records] == ["WARNING"]


def test_a_paused_server_is_seen_and_an_ended_one_is_not_signalled(
    directory: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    RecordFile(record_of(sleeper)).write()
    sleeper.send_signal(signal.SIGSTOP)
    deadline = time.monotonic() + 10
    while (found := running_servers()[0]).state != PAUSED:
        assert time.monotonic() < deadline
    assert found.is_own

    assert terminate(found)
    sleeper.send_signal(signal.SIGCONT)
    assert sleeper.wait(10) == -signal.SIGTERM
    assert not terminate(found)
    assert running_servers() == []


def test_a_directory_that_cannot_be_written_does_not_stop_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(run_records.DIRECTORY_VARIABLE, str(tmp_path / "file" / "run"))
    file = RecordFile(record())

    file.write()
    file.write(state="ready")
    file.remove()

    assert [each.levelname for each in caplog.records] == ["WARNING"]
