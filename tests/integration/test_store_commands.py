"""`bolide store` as it is installed: what it prints and how it ends."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bolide.store.config import StoreConfig
from bolide.store.message_store import MessageStore
from tests.support.filled_store import filled, flip, log_file, queue_file

BOLIDE = str(Path(sys.executable).parent / "bolide")


@pytest.fixture
def config(tmp_path: Path) -> StoreConfig:
    return filled(tmp_path / "store", 60)


def run(*words: object) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    done = subprocess.run(
        [BOLIDE, "store", *map(str, words)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_a_sound_store_ends_with_0(config: StoreConfig) -> None:
    code, out, err = run("verify", config.root)

    assert (code, err) == (0, "")
    assert out.startswith("60 records in 1 log files (0 to ")
    assert out.endswith("\nsound\n")


def test_damage_is_told_with_its_place_and_ends_with_1(config: StoreConfig) -> None:
    flip(log_file(config.root), 90)

    code, out, _ = run("verify", config.root)

    assert code == 1
    assert out.splitlines()[0].startswith(f"{log_file(config.root)} at 0: the body's CRC")
    assert out.splitlines()[-1] == "damaged: commit log 1, consume queues 1, key index 4"


def test_quiet_prints_nothing_but_damage(config: StoreConfig) -> None:
    assert run("verify", "--quiet", config.root) == (0, "", "")
    path = queue_file(config.root)
    flip(path, 45)

    code, out, err = run("verify", "--quiet", config.root)

    assert (code, err) == (1, "")
    assert out.startswith(f"{path} at 40: unit 2 of Orders/0: it points to ")
    assert len(out.splitlines()) == 1


def test_json_is_one_document(config: StoreConfig) -> None:
    flip(queue_file(config.root), 45)

    code, out, _ = run("verify", "--json", config.root)

    told = json.loads(out)
    assert (code, told["sound"], told["records"]) == (1, False, 60)
    assert told["damages"] == {"consume queues": 1}
    (finding,) = told["findings"]
    assert (finding["file"], finding["offset"]) == (str(queue_file(config.root)), 40)
    assert finding["part"] == "consume queues"
    assert "physicalOffset" in finding


def test_repair_says_what_it_did_and_leaves_a_store_that_opens(config: StoreConfig) -> None:
    flip(queue_file(config.root), 45)

    code, out, _ = run("verify", "--repair", config.root)

    assert code == 0
    assert f"repaired: {queue_file(config.root).parent}: 1 units written" in out
    assert run("verify", "--quiet", config.root)[0] == 0
    with MessageStore(config, background=False) as store:
        assert store.units == 60


def test_the_settings_of_a_broker_are_taken(config: StoreConfig) -> None:
    file = config.root.parent / "broker.conf"
    file.write_text(
        "brokerName=a\nlistenPort=10911\nstorePathRootDir=/elsewhere\n"
        f"mapedFileSizeCommitLog={config.commit_log_file_size}\n"
        f"mappedFileSizeConsumeQueue={config.consume_queue_file_size}\n"
        f"maxHashSlotNum={config.max_hash_slots}\nmaxIndexNum={config.max_index_entries}\n"
    )
    assert run("verify", "-c", file, config.root)[0] == 0
    file.write_text("mappedFileSizeCommitLog=8192\n")

    code, out, _ = run("verify", "-c", file, config.root)

    assert code == 1
    assert "is 16384 bytes long instead of 8192" in out


def test_what_cannot_be_looked_at_ends_with_3(config: StoreConfig) -> None:
    code, out, err = run("verify", config.root.parent)
    assert (code, out) == (3, "")
    assert (
        err == f"bolide: {config.root.parent}: is no store directory: there is no commitlog in it\n"
    )
    with MessageStore(config, background=False):
        code, _, err = run("verify", config.root)
    assert code == 3
    assert err == f"bolide: {config.root}/lock is locked: another broker has this store open\n"


def test_messages_come_out_as_json_lines(config: StoreConfig) -> None:
    with MessageStore(config, background=False):  # nobody minds
        code, out, err = run("dump", config.root, "--topic", "Bills", "--limit", 2, "--body", "hex")

    assert (code, err) == (0, "")
    first, second = map(json.loads, out.splitlines())
    assert (first["uniqueId"], second["uniqueId"]) == ("U000000", "U000003")
    assert bytes.fromhex(second["bodyHex"]) == b"body 3 " * 4


def test_a_reader_who_goes_away_ends_a_dump_quietly(tmp_path: Path) -> None:
    config = filled(tmp_path / "store", 1000)
    with subprocess.Popen(
        [BOLIDE, "store", "dump", str(config.root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout and process.stderr
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_a_dump_that_cannot_be_made_ends_with_3(config: StoreConfig) -> None:
    code, out, err = run("dump", config.root, "--from", "soon")
    assert (code, out) == (3, "")
    assert err == "bolide: 'soon' is neither an offset nor a time (ISO 8601)\n"
    assert run("dump", config.root / "missing")[0] == 3
    assert run("dump", config.root, "--body", "colour")[0] == 2
