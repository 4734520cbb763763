"""A data directory has one cluster at a time, and says what a killed one left."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bolide.cluster.data_directory import (
    Bridge,
    ClusterState,
    DataDirectory,
    DataDirectoryTaken,
    MemberState,
    read_state,
)
from bolide.errors import ConfigError

STATE = ClusterState(
    pid=os.getpid(), network="namespaces", bridge=Bridge("bol0", "02:00:00:00:00:01"),
    name_servers="127.0.0.1:9876",
    members=(
        MemberState(
            name="namesrv-0", role="namesrv", address="127.0.0.1:9876", state="alive", pid=1,
            started_at=2.0, directory="/data/namesrv-0",
        ),
    ),
)  # fmt: skip


def test_a_second_holder_is_refused_by_the_name_of_the_directory(tmp_path: Path) -> None:
    first, second = DataDirectory(tmp_path), DataDirectory(tmp_path)
    first.acquire_for_start()

    with pytest.raises(DataDirectoryTaken, match=f"--data {tmp_path}: a cluster runs there"):
        second.acquire_for_start()

    first.release()
    second.acquire_for_start()
    second.release()


def test_the_refusal_names_the_process_if_it_is_known(tmp_path: Path) -> None:
    first = DataDirectory(tmp_path)
    first.acquire()
    first.write(STATE)

    with pytest.raises(DataDirectoryTaken, match=f"process {os.getpid()}"):
        DataDirectory(tmp_path).acquire()

    first.release()


def test_the_directory_of_a_killed_cluster_must_be_cleaned_up_first(tmp_path: Path) -> None:
    killed = DataDirectory(tmp_path)
    killed.acquire_for_start()
    killed.write(STATE)
    killed.release()
    directory = DataDirectory(tmp_path)

    with pytest.raises(ConfigError, match=f"`bolide cluster down --data {tmp_path}` ends"):
        directory.acquire_for_start()

    assert not directory.is_held
    directory.acquire()
    directory.remove_state()
    directory.release()
    directory.acquire_for_start()
    directory.release()


def test_the_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    assert read_state(tmp_path) is None

    directory.write(STATE)

    assert read_state(tmp_path) == STATE


def test_a_file_that_is_no_state_is_named(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text("{}", encoding="utf-8")

    with pytest.raises(ConfigError, match=r"cluster\.json: not the state of a cluster"):
        read_state(tmp_path)


HOLD = """
import sys
from pathlib import Path
from bolide.cluster.data_directory import DataDirectory
directory = DataDirectory(Path(sys.argv[1]))
directory.acquire()
print("held", flush=True)
sys.stdin.read()
"""


def test_a_child_process_takes_the_lock_over(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    directory.acquire()
    with (
        directory.passed_on() as (lock, environment),
        subprocess.Popen(
            [sys.executable, "-c", HOLD, os.fspath(tmp_path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, pass_fds=[lock],
        ) as child,
    ):  # fmt: skip
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        directory.release()

        with pytest.raises(DataDirectoryTaken):
            directory.acquire()

        child.communicate()
    directory.acquire()
    directory.release()


def test_a_lock_of_another_directory_is_not_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, other = DataDirectory(tmp_path / "a"), DataDirectory(tmp_path / "b")
    taken.acquire()
    other.acquire()
    other_descriptor = other._descriptor
    monkeypatch.setenv("BOLIDE_CLUSTER_LOCK", str(other_descriptor))

    with pytest.raises(DataDirectoryTaken):
        DataDirectory(tmp_path / "a").acquire()

    assert "BOLIDE_CLUSTER_LOCK" not in os.environ
    taken.release()
    other.release()
