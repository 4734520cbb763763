"""Messages come out of a store as JSON can hold them."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from bolide.errors import ConfigError
from bolide.model.message import CompressionType, Host
from bolide.protocol.compression import compress
from bolide.protocol.hosts import pack_host
from bolide.protocol.record import Record
from bolide.store.config import StoreConfig
from bolide.store.dump import BodyForm, Bound, Selection, describe, dump
from bolide.store.message_store import MessageStore
from tests.support.filled_store import SETTINGS, draft, filled, flip, log_file

EVERYTHING = Selection()


@pytest.fixture
def config(tmp_path: Path) -> StoreConfig:
    return filled(tmp_path / "store", 200)


def refuse(text: str) -> None:
    raise AssertionError(text)


def uniques(path: Path, selection: Selection = EVERYTHING) -> list[int]:
    """Numbers of the messages that come out."""
    records = dump(path, selection, refuse)
    return [int(record.decode_properties()["UNIQ_KEY"][1:]) for record in records]


def offset(value: int) -> Bound:
    return Bound(value, is_time=False)


def test_a_store_directory_gives_all_messages_in_order(config: StoreConfig) -> None:
    assert uniques(config.root) == list(range(200))


def test_a_log_file_gives_its_own_messages(config: StoreConfig) -> None:
    parts = [uniques(log_file(config.root, number)) for number in range(2)]

    assert parts[0] + parts[1] == list(range(len(parts[0]) + len(parts[1])))
    assert len(parts[0]) > 10 < len(parts[1])
    assert uniques(config.root / "commitlog") == list(range(200))


def test_records_kept_aside_are_found_behind_the_damage(config: StoreConfig) -> None:
    """The file begins at the damage and is shorter than a log file."""
    source = log_file(config.root, 1)
    cut = config.root / "cut" / f"{int(source.name) + 100:020d}"
    cut.parent.mkdir()
    cut.write_bytes(source.read_bytes()[100:9000])
    warnings: list[str] = []

    found = list(dump(cut, EVERYTHING, warnings.append))

    assert len(warnings) == 2  # before the first whole record and behind the last
    assert [record.physical_offset for record in found] == [
        record.physical_offset
        for record in dump(source, EVERYTHING, refuse)
        if int(source.name) + 100 <= record.physical_offset
        and record.physical_offset + record.size <= int(source.name) + 9000
    ]


def test_a_store_in_use_is_read_up_to_its_end(config: StoreConfig) -> None:
    with MessageStore(config, background=False) as store:
        store.append(draft(200))
        assert uniques(config.root) == list(range(201))


def test_messages_are_chosen_by_topic_queue_and_key(config: StoreConfig) -> None:
    bills = [number for number in range(200) if number % 3 == 0]
    assert uniques(config.root, Selection(topic="Bills")) == bills
    assert uniques(config.root, Selection(queue_id=1)) == list(range(1, 200, 2))
    both = Selection(topic="Bills", queue_id=1)
    assert uniques(config.root, both) == [number for number in bills if number % 2]
    assert uniques(config.root, Selection(key="k17")) == [17]
    assert uniques(config.root, Selection(key="U000018")) == [18]
    assert uniques(config.root, Selection(key="all", topic="Bills")) == bills


def test_offsets_are_physical_without_a_queue_and_its_own_with_one(config: StoreConfig) -> None:
    places = [record.physical_offset for record in dump(config.root, EVERYTHING, refuse)]
    chosen = Selection(first=offset(places[90]), last=offset(places[120]))
    assert uniques(config.root, chosen) == list(range(90, 120))

    queue = Selection(topic="Bills", queue_id=1, first=offset(5), last=offset(8))
    found = list(dump(config.root, queue, refuse))
    assert [record.queue_offset for record in found] == [5, 6, 7]


def test_a_queue_without_files_is_read_from_the_log(config: StoreConfig) -> None:
    for file in (config.root / "consumequeue" / "Bills" / "1").iterdir():
        file.unlink()
    queue = Selection(topic="Bills", queue_id=1, first=offset(30))

    assert [record.queue_offset for record in dump(config.root, queue, refuse)] == [30, 31, 32]


def test_times_choose_messages_and_files(tmp_path: Path) -> None:
    now = 1_700_000_000.0
    config = replace(SETTINGS, root=tmp_path / "store")
    with MessageStore(config, background=False, clock=lambda: now) as store:
        for number in range(200):
            now += 1
            store.append(draft(number))
    begin, end = Bound.parse("2023-11-14T22:14:00Z"), Bound.parse("2023-11-14T23:15:00+01:00")

    assert uniques(config.root, Selection(first=begin, last=end)) == list(range(39, 99))
    queue = Selection(first=begin, last=end, topic="Orders", queue_id=0)
    assert uniques(config.root, queue) == list(range(39, 99))
    assert uniques(config.root, Selection(first=Bound.parse(f"@{int(now * 1000)}"))) == [199]


def test_damage_is_told_and_passed_over(config: StoreConfig) -> None:
    flip(log_file(config.root), 90)
    warnings: list[str] = []

    assert len(list(dump(config.root, EVERYTHING, warnings.append))) == 199
    assert len(warnings) == 1 and "CRC" in warnings[0]
    queue = Selection(topic="Bills", queue_id=0)
    assert len(list(dump(config.root, queue, warnings.append))) == 33
    assert warnings[1].startswith("queue offset 0, at 0: ")


@pytest.mark.parametrize("text", ["", "yesterday", "-5", "@x", "2023-13-01"])
def test_what_is_no_offset_and_no_time_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="neither an offset nor a time"):
        Bound.parse(text)


def test_a_path_without_a_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    for path in (tmp_path, tmp_path / "notes.txt", tmp_path / "missing"):
        with pytest.raises(ConfigError, match="neither a store directory nor a log file"):
            list(dump(path, EVERYTHING, refuse))


# One message


def only(tmp_path: Path, **fields: object) -> Record:
    """The record of one message with these fields."""
    config = replace(SETTINGS, root=tmp_path / "store")
    now = 1_700_000_000.25
    with MessageStore(config, background=False, clock=lambda: now) as store:
        store.append(draft(7)._replace(**fields))  # type: ignore[arg-type]
    (record,) = dump(config.root, EVERYTHING, refuse)
    return record


def test_a_message_is_described_whole(tmp_path: Path) -> None:
    told = describe(only(tmp_path, flag=5, reconsume_times=2), BodyForm.TEXT)

    assert msgspec.json.decode(msgspec.json.encode(told)) == {
        "topic": "Orders",
        "queueId": 0,
        "queueOffset": 0,
        "physicalOffset": 0,
        "size": told["size"],
        "storeTime": "2023-11-14T22:13:20.250Z",
        "bornTime": "2023-11-14T22:13:20.000Z",
        "storeHost": "10.0.0.1:10911",
        "bornHost": "10.0.0.1:10911",
        "offsetId": "0A00000100002A9F0000000000000000",
        "uniqueId": "U000007",
        "tags": "t1",
        "keys": ["k7", "all"],
        "flag": 5,
        "sysFlag": 0,
        "flags": [],
        "transaction": "NONE",
        "compression": None,
        "reconsumeTimes": 2,
        "preparedTransactionOffset": 0,
        "bodyCrc": told["bodyCrc"],
        "bodySize": 56,
        "properties": {"TAGS": "t1", "KEYS": "k7 all", "UNIQ_KEY": "U000007"},
        "body": "body 7 " * 8,
    }


@pytest.mark.parametrize(
    ("form", "name", "value"),
    [
        (BodyForm.TEXT, "bodyBase64", "/wA="),
        (BodyForm.BASE64, "bodyBase64", "/wA="),
        (BodyForm.HEX, "bodyHex", "ff00"),
        (BodyForm.NONE, "bodyHex", None),
    ],
)
def test_a_body_that_is_no_text_is_written_as_asked(
    tmp_path: Path, form: BodyForm, name: str, value: str | None
) -> None:
    told = describe(only(tmp_path, body=b"\xff\x00"), form)

    assert told.get(name) == value
    assert "body" not in told


def test_a_compressed_body_is_shown_plain(tmp_path: Path) -> None:
    kind = CompressionType.ZLIB
    body = compress(b"hello " * 50, kind)

    told = describe(only(tmp_path, body=body, sys_flag=kind.flags), BodyForm.TEXT)

    assert (told["body"], told["compression"]) == ("hello " * 50, "ZLIB")
    assert (told["bodySize"], told["flags"]) == (len(body), ["COMPRESSED"])


def test_a_body_that_does_not_inflate_is_shown_as_it_is(tmp_path: Path) -> None:
    kind = CompressionType.ZLIB
    told = describe(only(tmp_path, body=b"no zlib", sys_flag=kind.flags), BodyForm.TEXT)

    assert told["body"] == "no zlib"
    assert "compressed body" in str(told["compression"])


def test_hosts_of_both_kinds_and_odd_times_are_written(tmp_path: Path) -> None:
    six = pack_host(Host("2001:db8::1", 10911))
    told = describe(only(tmp_path, born_host=six, born_timestamp=2**62), BodyForm.NONE)

    assert (told["bornHost"], told["bornTime"]) == ("[2001:db8::1]:10911", 2**62)
    assert told["flags"] == ["BORN_HOST_V6"]
    assert told["storeHost"] == "10.0.0.1:10911"
