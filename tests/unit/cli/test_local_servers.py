"""How `bolide status` shows servers to people, and what `bolide shutdown` takes."""

import os
import re
import shutil
import sys
from datetime import datetime
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from bolide.cli import app
from bolide.cli.local_servers import _print_table
from bolide.cli.run_records import RunningServer, record_of_this_process

ADDRESSES = ("192.168.100.101:10911", "192.168.100.101:10909", "192.168.100.101:10912")


@pytest.mark.parametrize("columns", [80, 300])
def test_addresses_and_dates_are_never_broken_over_lines(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    record = msgspec.structs.replace(
        record_of_this_process("broker", "broker-a", Path("/var/lib/store"), ADDRESSES),
        data="/var/lib/\x1b[31mstore",
    )
    assert shutil.get_terminal_size().columns == columns

    _print_table([RunningServer(record, "ready", "me", is_own=True)] * 2)

    printed = capsys.readouterr().out
    since = datetime.fromtimestamp(record.started_at).astimezone().isoformat(" ", "seconds")
    for text in (*ADDRESSES, since, "broker-a", str(os.getpid())):
        assert printed.count(text) >= 2
    assert "\x1b[31m" not in printed
    assert max(map(len, re.sub(r"\x1b\[[0-9;]*m", "", printed).splitlines())) <= columns


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_the_time_limit_of_a_shutdown_is_finite(value: str) -> None:
    done = CliRunner().invoke(app, ["shutdown", "broker", "--timeout", value])
    assert done.exit_code == 2
