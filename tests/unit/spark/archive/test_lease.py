"""The write lease: one holder at a time, takeover after missing heartbeats."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from bolide.spark.archive import lease as lease_module
from bolide.spark.archive.errors import LeaseLost, TableBusy
from bolide.spark.archive.files import LocalFiles
from bolide.spark.archive.lease import STALE_AFTER, Holder, Lease


def hold(files: LocalFiles, *, host: str, pid: int, age: float) -> None:
    holder = Holder("other", host, pid, time.time() - age)
    files.write_new("_bolide/writer.json", msgspec.json.encode(holder))


def test_the_hold_of_a_process_that_is_gone_is_taken_over_at_once(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    hold(files, host=socket.gethostname(), pid=gone.pid, age=1)
    with Lease(files, "mine") as lease:
        lease.confirm()
    assert files.names("_bolide") in ([], ["beats"])


@pytest.mark.parametrize("pid", [os.getpid(), 1])
def test_the_hold_of_a_process_that_lives_is_respected(tmp_path: Path, pid: int) -> None:
    files = LocalFiles(tmp_path)
    hold(files, host=socket.gethostname(), pid=pid, age=1)
    with pytest.raises(TableBusy, match=f"run other .process {pid}"), Lease(files, "mine"):
        pass


def test_a_hold_on_another_machine_ends_after_silence(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    hold(files, host="elsewhere", pid=1, age=STALE_AFTER + 30)
    files.overwrite("_bolide/beats/other", str(time.time() - STALE_AFTER / 2).encode())
    with pytest.raises(TableBusy), Lease(files, "mine"):
        pass
    files.overwrite("_bolide/beats/other", str(time.time() - STALE_AFTER - 1).encode())
    with Lease(files, "mine") as lease:
        lease.confirm()


def test_a_holder_gives_signs_of_life_and_finds_out_who_took_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "HEARTBEAT_INTERVAL", 0.01)
    files = LocalFiles(tmp_path)
    with Lease(files, "mine") as lease:
        deadline = time.monotonic() + 20
        while not files.exists("_bolide/beats/mine"):
            assert time.monotonic() < deadline
        files.delete("_bolide/writer.json")
        hold(files, host="elsewhere", pid=1, age=0)
        with pytest.raises(LeaseLost):
            lease.confirm()
    assert files.exists("_bolide/writer.json")  # it belongs to the other run
