"""NameServers for tests: inside the test's event loop, or as a process of their own."""

import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bolide.namesrv.config import NameServerConfig
from bolide.namesrv.server import NameServer
from tests.support.aio import PATIENCE


def config_in(directory: Path, **settings: Any) -> NameServerConfig:
    """Settings with all files under `directory` and a port that the system chooses."""
    chosen: dict[str, Any] = {
        "bind_address": "127.0.0.1",
        "listen_port": 0,
        "kv_config_path": directory / "kvConfig.json",
        "config_store_path": directory / "namesrv.properties",
        "shutdown_wait_time_seconds": 2,
    }
    return NameServerConfig(**chosen | settings)


def name_server(directory: Path, **settings: Any) -> NameServer:
    return NameServer(config_in(directory, **settings))


class NameServerProcess:
    """A NameServer as people run it, watched from outside."""

    def __init__(self, process: subprocess.Popen[bytes], address: str) -> None:
        self.address = address
        self._process = process

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def private_memory(self) -> int:
        """Bytes of memory that are its own (RssAnon)."""
        status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii")
        found = re.search(r"RssAnon:\s+(\d+) kB", status)
        assert found is not None
        return int(found.group(1)) * 1024

    def cpu_seconds(self) -> float:
        stat = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="ascii")
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def open_files(self) -> int:
        return len(list(Path(f"/proc/{self._process.pid}/fd").iterdir()))

    def limit_files(self, count: int) -> None:
        resource.prlimit(self._process.pid, resource.RLIMIT_NOFILE, (count, count))


@contextmanager
def name_server_process(directory: Path, *settings: str) -> Iterator[NameServerProcess]:
    """Run `bolide namesrv` on a free port; its log is `namesrv.log` in `directory`."""
    if not Path("/proc/self/status").exists():
        pytest.skip("there is no /proc to watch a process through")
    log_config = directory / "logging.toml"
    log_config.write_text(f'file = "{directory / "namesrv.log"}"\n', encoding="utf-8")
    command = [
        str(Path(sys.executable).with_name("bolide")), "namesrv", "--log-config", str(log_config),
        "bindAddress=127.0.0.1", "listenPort=0", f"kvConfigPath={directory / 'kvConfig.json'}",
        f"configStorePath={directory / 'namesrv.properties'}", *settings,
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            yield NameServerProcess(process, _announced_address(process))
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                raise


def _announced_address(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(rb"boot success.*address (\S+)", line):
            return found.group(1).decode()
    raise AssertionError("the NameServer ended before it served")
