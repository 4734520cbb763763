"""The store contract. Each test runs on the file store in both flush modes and on the memory store.

`put` waits until the messages are flushed, as with SYNC_FLUSH they are readable only then.
"""

import os
import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from bolide.kernel.records import SCHEDULE_TOPIC
from bolide.model.message import SysFlag
from bolide.protocol.headers.offsets import Boundary
from bolide.protocol.record import MAX_PROPERTIES_SIZE, RecordDraft
from bolide.protocol.record_errors import RecordTooLarge
from bolide.protocol.record_seal import check_seal
from bolide.protocol.tags import tags_code
from bolide.store.appending import Appended
from bolide.store.contract import Store
from bolide.store.errors import StoreClosed, StoreUnwritable
from bolide.store.flusher import Flushed
from bolide.store.memory_store import MemoryStore
from bolide.store.message_store import MessageStore
from bolide.store.reading import MessageFilter, ReadLimits, ReadStatus
from tests.contract.conftest import MakeStore
from tests.support.batches import batch_draft, items
from tests.support.clock import FakeClock
from tests.support.store import MONDAY_NOON, V6, body_of, draft, record_of, small_config

NOON_MS = int(MONDAY_NOON * 1000)


def put(store: Store, *drafts: RecordDraft) -> list[Appended]:
    """Append in order and wait until all are readable."""
    appended = [store.append(each) for each in drafts]
    assert all(store.wait_flushed(each) for each in appended)
    return appended


def put_batch(store: Store, drafts: Sequence[RecordDraft]) -> list[Appended]:
    appended = store.append_batch(drafts)
    assert store.wait_flushed(appended[-1])
    return appended


def bodies(store: Store, topic: str = "T", queue_id: int = 0, start: int = 0) -> list[bytes]:
    """All messages of a queue from an offset on, by repeated reads."""
    found: list[bytes] = []
    while (step := store.read(topic, queue_id, start)).status is ReadStatus.FOUND:
        found += [body_of(record) for record in step.records]
        start = step.next_offset
    assert step.status in {ReadStatus.OFFSET_OVERFLOW_ONE, ReadStatus.NO_MESSAGE_IN_QUEUE}
    return found


# ---- appending


def test_a_message_comes_back_as_the_record_it_became(store: Store) -> None:
    message = draft(body=b"payload", queue_id=3, properties={"TAGS": "a", "KEYS": "k"})
    (appended,) = put(store, message._replace(flag=7, reconsume_times=2))
    found = store.read("T", 3, 0)
    assert found.status is ReadStatus.FOUND
    record = record_of(found.records[0])
    assert (record.topic, record.queue_id, bytes(record.body)) == ("T", 3, b"payload")
    assert (record.flag, record.reconsume_times) == (7, 2)
    assert record.decode_properties() == {"TAGS": "a", "KEYS": "k"}
    assert record.physical_offset == appended.physical_offset
    assert record.store_timestamp == appended.store_timestamp == NOON_MS
    assert found.size == appended.size == len(found.records[0])


def test_messages_lie_one_behind_the_other_and_queues_count_for_themselves(store: Store) -> None:
    appended = put(store, draft("A"), draft("B"), draft("A"), draft("A", queue_id=1))
    assert [each.queue_offset for each in appended] == [0, 0, 1, 0]
    assert appended[0].physical_offset == 0
    for before, after in pairwise(appended):
        assert after.physical_offset == before.end


def test_a_batch_gets_consecutive_offsets_and_one_store_time(store: Store) -> None:
    put(store, draft(body=b"0"))
    batch = put_batch(store, [draft(body=str(number).encode()) for number in range(1, 4)])
    assert [each.queue_offset for each in batch] == [1, 2, 3]
    assert len({each.store_timestamp for each in batch}) == 1
    assert bodies(store) == [b"0", b"1", b"2", b"3"]


def test_a_batch_that_does_not_fit_goes_to_the_next_file_as_a_whole(make_store: MakeStore) -> None:
    store = make_store(log_size=4096)
    put(store, draft(body=bytes(2000)))
    batch = put_batch(store, [draft(body=bytes(900)) for _ in range(3)])
    assert batch[0].physical_offset == 4096
    assert batch[2].end == 4096 + sum(each.size for each in batch)


@pytest.mark.parametrize(
    "second", [draft("U"), draft("T", queue_id=1)], ids=["another topic", "another queue"]
)
def test_a_batch_of_two_queues_is_refused_whole(store: Store, second: RecordDraft) -> None:
    with pytest.raises(ValueError, match="one topic and queue"):
        store.append_batch([draft("T"), second])
    assert store.max_offset("T", 0) == 0


def test_an_empty_batch_is_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="one topic and queue"):
        store.append_batch([])


def test_a_batch_with_one_oversized_message_is_refused_whole(make_store: MakeStore) -> None:
    store = make_store(max_message_size=100)
    with pytest.raises(RecordTooLarge):
        store.append_batch([draft(body=b"fits"), draft(body=bytes(101))])
    (appended,) = put(store, draft(body=b"next"))
    assert (appended.physical_offset, appended.queue_offset) == (0, 0)
    assert bodies(store) == [b"next"]


def test_files_roll_without_a_gap_in_the_queues(make_store: MakeStore) -> None:
    store = make_store(log_size=4096)
    sent = [bytes([number]) * 700 for number in range(40)]
    appended = put(store, *(draft(body=body) for body in sent))
    assert len({each.physical_offset // 4096 for each in appended}) == 8
    assert all(each.physical_offset // 4096 == (each.end + 7) // 4096 for each in appended)
    assert [each.queue_offset for each in appended] == list(range(40))
    assert bodies(store) == sent


# ---- limits


def test_a_body_at_the_limit_fits_and_one_above_does_not(make_store: MakeStore) -> None:
    store = make_store(max_message_size=1000)
    put(store, draft(body=bytes(1000)))
    with pytest.raises(RecordTooLarge) as caught:
        store.append(draft(body=bytes(1001)))
    assert (caught.value.part, caught.value.size, caught.value.limit) == ("body", 1001, 1000)


def test_properties_over_what_their_length_can_say_are_refused(make_store: MakeStore) -> None:
    store = make_store(log_size=65536)
    room = MAX_PROPERTIES_SIZE - len("name\x01\x02")
    put(store, draft(properties={"name": "x" * room}))
    with pytest.raises(RecordTooLarge, match="properties"):
        store.append(draft(properties={"name": "x" * (room + 1)}))


def test_a_record_longer_than_a_file_is_refused(make_store: MakeStore) -> None:
    store = make_store(log_size=4096)
    put(store, draft(body=b"before"))
    with pytest.raises(RecordTooLarge, match="record"):
        store.append(draft(body=bytes(4096)))
    (appended,) = put(store, draft(body=b"after"))
    assert appended.physical_offset < 4096
    assert bodies(store) == [b"before", b"after"]


def test_a_long_topic_makes_a_record_of_version_two(store: Store) -> None:
    put(store, draft("t" * 127), draft("t" * 128), draft("t" * 255))
    versions = [
        record_of(store.read("t" * length, 0, 0).records[0]).message().version
        for length in (127, 128, 255)
    ]
    assert versions == [1, 2, 2]


@pytest.mark.parametrize(
    ("hosts", "flags"),
    [
        ({"born_host": V6}, 0x10),
        ({"store_host": V6}, 0x20),
        ({"born_host": V6, "store_host": V6}, 0x30),
    ],
    ids=["born", "store", "both"],
)
def test_hosts_may_be_ipv6(store: Store, hosts: dict[str, bytes], flags: int) -> None:
    put(store, draft(**hosts), draft())  # type: ignore[arg-type]  # hosts are bytes
    record = record_of(store.read("T", 0, 0).records[0])
    assert record.sys_flag == flags
    for name, packed in hosts.items():
        assert getattr(record, name) == packed
    assert record_of(store.record_at(record.size)).queue_offset == 1


@pytest.mark.parametrize(
    "topic", ["", ".", "..", "a/b", "/etc", "nul\0", "x" * 256], ids=lambda topic: repr(topic)[:9]
)
def test_a_topic_that_cannot_be_a_directory_is_refused(store: Store, topic: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name of a directory"):
        store.append(draft(topic))
    with pytest.raises(ValueError, match="cannot be the name of a directory"):
        store.append_batch([draft(topic), draft(topic)])
    (appended,) = put(store, draft("fine"))
    assert appended.physical_offset == 0


@pytest.mark.parametrize("queue_id", [-1, 2**31])
def test_a_queue_id_outside_of_its_range_is_refused(store: Store, queue_id: int) -> None:
    with pytest.raises(ValueError, match=r"below 0|fits no field"):
        store.append(draft(queue_id=queue_id))


def test_topics_beyond_ascii_are_kept_apart(store: Store) -> None:
    put(store, draft("größe", b"1"), draft("grösse", b"2"), draft("消息", b"3"))
    assert [bodies(store, topic) for topic in ("größe", "grösse", "消息")] == [
        [b"1"],
        [b"2"],
        [b"3"],
    ]


# ---- transactions, delays


@pytest.mark.parametrize("half", [SysFlag.PREPARED, SysFlag.ROLLBACK])
def test_half_and_rolled_back_messages_get_no_queue_offset(store: Store, half: SysFlag) -> None:
    first, second, third = put(store, draft(), draft(sys_flag=int(half)), draft())
    assert (first.queue_offset, second.queue_offset, third.queue_offset) == (0, 0, 1)
    record = record_of(store.record_at(second.physical_offset))
    assert (record.queue_offset, record.sys_flag) == (0, int(half))
    assert len(store.read("T", 0, 0).records) == 2


def test_a_commit_gets_a_queue_offset_as_any_message(store: Store) -> None:
    put(store, draft(), draft(sys_flag=int(SysFlag.COMMIT)))
    assert store.max_offset("T", 0) == 2


def test_a_half_message_is_found_by_key_and_a_rollback_is_not(store: Store) -> None:
    put(
        store,
        draft(sys_flag=int(SysFlag.PREPARED), properties={"KEYS": "half"}),
        draft(sys_flag=int(SysFlag.ROLLBACK), properties={"KEYS": "back"}),
    )
    assert len(store.find("T", "half")) == 1
    assert store.find("T", "back") == []


def test_a_batch_in_one_record_is_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="batches in one record"):
        store.append(batch_draft(items(0, 2), "T"))
    with pytest.raises(ValueError, match="batches in one record"):
        store.append_batch([batch_draft(items(0, 2), "T")] * 2)


def test_a_batch_queue_has_an_offset_for_each_message_of_a_record(store: Store) -> None:
    store.set_batched("Bulk", is_batched=True)
    assert store.append(batch_draft(items(0, 3))).queue_offset == 0
    assert store.append(draft("Bulk")).queue_offset == 3
    assert store.append(batch_draft(items(4, 2))).queue_offset == 4
    store.flush()
    assert (store.min_offset("Bulk", 0), store.max_offset("Bulk", 0)) == (0, 6)
    for first, count in [(0, 3), (1, 3), (2, 3), (3, 2), (4, 1), (5, 1)]:
        found = store.read("Bulk", 0, first)
        assert (len(found.records), found.next_offset) == (count, 6)
    assert store.read("Bulk", 0, 6).status is ReadStatus.OFFSET_OVERFLOW_ONE
    with pytest.raises(ValueError, match="batches"):
        store.tail(b"Bulk", 0)


def test_a_batch_queue_says_which_messages_were_stored_when(store: Store) -> None:
    store.set_batched("Bulk", is_batched=True)
    stored = [store.append(batch_draft(items(first, 2))).store_timestamp for first in (0, 2)]
    store.flush()
    assert store.earliest_time("Bulk", 0) == stored[0]
    assert store.stored_at("Bulk", 0, 3) == stored[1]
    assert store.offset_at("Bulk", 0, stored[0] - 1) == 0
    assert store.offset_at("Bulk", 0, stored[1] + 1) == 2
    assert store.is_recent("Bulk", 0, 1)


def test_queues_of_a_topic_change_their_kind_with_its_content(store: Store) -> None:
    store.set_batched("Bulk", is_batched=True)
    store.append(batch_draft(items(0, 3)))
    store.set_batched("Bulk", is_batched=False)
    assert store.append(draft("Bulk")).queue_offset == 0
    with pytest.raises(ValueError, match="batches in one record"):
        store.append(batch_draft(items(0, 3)))


@pytest.mark.parametrize(
    ("level", "delay_ms"),
    [("1", 1000), ("3", 60_000), ("99", 60_000), ("0", None), ("", None), ("x", None),
     ("-1", None), ("1" * 10, None), ("\u0663", None)],
)  # fmt: skip
def test_a_delayed_message_shows_its_delivery_time_to_the_filter(
    make_store: MakeStore, level: str, delay_ms: int | None
) -> None:
    store = make_store(message_delay_level="1s 5s 1m")
    topic = SCHEDULE_TOPIC.decode()
    put(store, draft(topic, properties={"TAGS": "tag", "DELAY": level}))
    put(store, draft("other", properties={"TAGS": "tag", "DELAY": level}))
    assert shown_codes(store, topic) == [
        tags_code("tag") if delay_ms is None else NOON_MS + delay_ms
    ]
    assert shown_codes(store, "other") == [tags_code("tag")]


def shown_codes(store: Store, topic: str) -> list[int]:
    seen: list[int] = []

    def note(code: int) -> bool:
        seen.append(code)
        return False

    store.read(topic, 0, 0, wanted=MessageFilter(code=note))
    return seen


# ---- reading


def test_each_place_to_read_from_has_its_status(store: Store) -> None:
    put(store, *(draft(body=bytes([number])) for number in range(3)))
    statuses = {
        offset: (found.status, found.next_offset)
        for offset in (-1, 0, 2, 3, 4, 1000)
        if (found := store.read("T", 0, offset))
    }
    assert statuses == {
        -1: (ReadStatus.OFFSET_TOO_SMALL, 0),
        0: (ReadStatus.FOUND, 3),
        2: (ReadStatus.FOUND, 3),
        3: (ReadStatus.OFFSET_OVERFLOW_ONE, 3),
        4: (ReadStatus.OFFSET_OVERFLOW_BADLY, 3),
        1000: (ReadStatus.OFFSET_OVERFLOW_BADLY, 3),
    }


def test_a_queue_that_is_not_there_matches_nothing(store: Store) -> None:
    put(store, draft())
    for topic, queue_id in (("T", 1), ("U", 0)):
        found = store.read(topic, queue_id, 0)
        assert (found.status, found.next_offset) == (ReadStatus.NO_MATCHED_LOGIC_QUEUE, 0)


def test_a_queue_without_a_message_says_so(store: Store) -> None:
    put(store, draft(sys_flag=int(SysFlag.PREPARED)))
    found = store.read("T", 0, 5)
    assert (found.status, found.next_offset) == (ReadStatus.NO_MESSAGE_IN_QUEUE, 0)


def test_a_read_says_between_which_offsets_the_queue_lies(store: Store) -> None:
    put(store, *(draft() for _ in range(3)))
    for offset in (0, 3, 9):
        found = store.read("T", 0, offset)
        assert (found.min_offset, found.max_offset) == (0, 3)
    assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (0, 3)


@pytest.mark.parametrize("count", [1, 2, 31, 32, 33])
def test_a_read_stops_at_the_count(store: Store, count: int) -> None:
    put(store, *(draft() for _ in range(40)))
    found = store.read("T", 0, 3, ReadLimits(max_count=count))
    assert len(found.records) == count
    assert found.next_offset == 3 + count


def test_a_read_stops_before_the_message_that_is_too_much(store: Store) -> None:
    size = put(store, *(draft() for _ in range(10)))[0].size
    for limit, count in ((size * 3, 3), (size * 3 + 1, 3), (size * 3 - 1, 2)):
        found = store.read("T", 0, 0, ReadLimits(max_size=limit))
        assert (len(found.records), found.size, found.next_offset) == (count, count * size, count)


def test_the_first_message_is_returned_however_large(store: Store) -> None:
    put(store, draft(body=bytes(3000)), draft())
    found = store.read("T", 0, 0, ReadLimits(max_size=10))
    assert [len(body_of(record)) for record in found.records] == [3000]


def test_a_read_gives_up_after_it_has_looked_at_enough(store: Store) -> None:
    put(store, *(draft(properties={"TAGS": "no"}) for _ in range(30)))
    put(store, draft(properties={"TAGS": "yes"}))
    wanted = MessageFilter(code=lambda code: code == tags_code("yes"))
    limits = ReadLimits(max_count=5, max_scanned=10)
    found = store.read("T", 0, 0, limits, wanted)
    assert (found.status, found.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 10)
    found = store.read("T", 0, 25, limits, wanted)
    assert (found.status, found.next_offset) == (ReadStatus.FOUND, 31)


def test_the_settings_say_how_far_a_read_looks(make_store: MakeStore) -> None:
    store = make_store(max_filter_bytes=40 * 20)
    put(store, *(draft() for _ in range(45)))
    found = store.read("T", 0, 0, wanted=MessageFilter(code=lambda _code: False))
    assert (found.status, found.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 40)


def test_a_filter_on_the_code_passes_over_messages(store: Store) -> None:
    put(store, *(draft(body=bytes([n]), properties={"TAGS": "ab"[n % 2]}) for n in range(6)))
    found = store.read("T", 0, 1, wanted=MessageFilter(code=lambda code: code == tags_code("a")))
    assert [body_of(record) for record in found.records] == [b"\2", b"\4"]
    assert found.next_offset == 6


def test_a_filter_on_the_record_sees_only_what_the_code_let_pass(store: Store) -> None:
    put(store, *(draft(body=bytes([n]), properties={"TAGS": "ab"[n % 2]}) for n in range(6)))
    seen: list[bytes] = []

    def is_large(record: memoryview) -> bool:
        seen.append(body_of(record))
        return seen[-1] > b"\1"

    found = store.read(
        "T", 0, 0, wanted=MessageFilter(lambda code: code == tags_code("a"), is_large)
    )
    assert [body_of(record) for record in found.records] == [b"\2", b"\4"]
    assert seen == [b"\0", b"\2", b"\4"]


def test_a_read_goes_over_all_the_files_of_a_queue(make_store: MakeStore) -> None:
    store = make_store(queue_units=3)
    put(store, *(draft(body=bytes([number])) for number in range(20)))
    assert bodies(store) == [bytes([number]) for number in range(20)]
    assert bodies(store, start=7) == [bytes([number]) for number in range(7, 20)]


def test_many_queues_and_topics_do_not_mix(store: Store) -> None:
    choice = random.Random(7)
    sent: dict[tuple[str, int], list[bytes]] = {}
    for number in range(200):
        topic, queue_id = choice.choice("ABC"), choice.randrange(4)
        body = str(number).encode()
        sent.setdefault((topic, queue_id), []).append(body)
        put(store, draft(topic, body, queue_id=queue_id))
    assert {key: bodies(store, *key) for key in sent} == sent


def test_a_record_is_found_by_its_position_and_only_by_that(store: Store) -> None:
    appended = put(store, *(draft(body=bytes(600) + bytes([number])) for number in range(12)))
    starts = {each.physical_offset for each in appended}
    for each in appended:
        record = record_of(store.record_at(each.physical_offset))
        assert record.queue_offset == each.queue_offset
    others = range(-1, appended[-1].end + 2)
    assert not [at for at in others if at not in starts and store.record_at(at) is not None]


# ---- keys


def test_messages_are_found_by_each_key_and_the_unique_key(store: Store) -> None:
    put(
        store,
        draft(body=b"1", properties={"KEYS": "red blue", "UNIQ_KEY": "u1"}),
        draft(body=b"2", properties={"KEYS": "blue"}),
        draft("other", b"3", properties={"KEYS": "blue"}),
    )
    assert [body_of(record) for record in store.find("T", "blue")] == [b"2", b"1"]
    assert [body_of(record) for record in store.find("T", "red")] == [b"1"]
    assert [body_of(record) for record in store.find("T", "u1")] == [b"1"]
    assert [body_of(record) for record in store.find("other", "blue")] == [b"3"]
    assert store.find("T", "green") == store.find("U", "blue") == []


def test_a_search_by_key_returns_the_newest_up_to_its_limit(make_store: MakeStore) -> None:
    store = make_store(max_query_batch=6, default_query_max=4)
    put(store, *(draft(body=bytes([n]), properties={"KEYS": "k"}) for n in range(30)))
    newest = [bytes([number]) for number in reversed(range(30))]
    assert [body_of(record) for record in store.find("T", "k", limit=3)] == newest[:3]
    assert [body_of(record) for record in store.find("T", "k")] == newest[:4]
    assert [body_of(record) for record in store.find("T", "k", limit=99)] == newest[:6]


def test_a_search_by_key_keeps_to_its_times(store: Store, clock: FakeClock) -> None:
    for number in range(10):
        put(store, draft(body=bytes([number]), properties={"KEYS": "k"}))
        clock.advance(10)
    begin, end = NOON_MS + 25_000, NOON_MS + 65_000
    found = store.find("T", "k", begin=begin, end=end)
    assert [body_of(record) for record in found] == [b"\6", b"\5", b"\4", b"\3"]
    assert store.find("T", "k", begin=NOON_MS + 95_000) == []
    assert store.find("T", "k", end=NOON_MS - 5_000) == []


def test_without_an_index_nothing_is_found_by_key(make_store: MakeStore) -> None:
    store = make_store(index_enabled=False)
    put(store, draft(properties={"KEYS": "k"}))
    assert store.find("T", "k") == []
    assert store.end_burst()


# ---- times


def naive_offset_at(times: list[int], timestamp: int, boundary: Boundary) -> int:
    if boundary is Boundary.LOWER:
        return next((n for n, time in enumerate(times) if time >= timestamp), len(times))
    return max((n for n, time in enumerate(times) if time <= timestamp), default=0)


def test_offsets_by_time_agree_with_looking_at_all_messages(store: Store, clock: FakeClock) -> None:
    choice = random.Random(11)
    times = []
    for _ in range(60):
        times.append(put(store, draft(), draft("noise"))[0].store_timestamp)
        clock.advance(choice.choice([0, 0, 0.001, 0.002, 1]))
    asked = {time + shift for time in times for shift in (-1, 0, 1)} | {0, 2**62}
    for boundary in Boundary:
        found = {time: store.offset_at("T", 0, time, boundary) for time in asked}
        assert found == {time: naive_offset_at(times, time, boundary) for time in asked}


def test_a_queue_that_is_not_there_has_no_times(store: Store) -> None:
    put(store, draft(), draft("half", sys_flag=int(SysFlag.PREPARED)))
    for topic, queue_id in (("T", 9), ("U", 0), ("half", 0)):
        assert store.offset_at(topic, queue_id, NOON_MS) == 0
        assert store.offset_at(topic, queue_id, NOON_MS, Boundary.UPPER) == 0
        assert store.earliest_time(topic, queue_id) == -1
        assert store.stored_at(topic, queue_id, 0) == -1
        assert store.min_offset(topic, queue_id) == store.max_offset(topic, queue_id) == 0


def test_times_of_messages_are_their_store_times(store: Store, clock: FakeClock) -> None:
    assert store.earliest_log_time() == -1
    for _ in range(3):
        put(store, draft("first"))
        clock.advance(5)
    put(store, draft("T"))
    clock.advance(5)
    put(store, draft("T"))
    assert store.earliest_log_time() == store.earliest_time("first", 0) == NOON_MS
    assert store.earliest_time("T", 0) == store.stored_at("T", 0, 0) == NOON_MS + 15_000
    assert store.stored_at("T", 0, 1) == NOON_MS + 20_000
    assert store.stored_at("T", 0, -1) == store.stored_at("T", 0, 2) == -1


def test_only_messages_near_the_end_of_the_log_are_recent(make_store: MakeStore) -> None:
    ratio = 2500 / (os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    store = make_store(memory_ratio=ratio)
    put(store, draft(body=b"old" * 500), *(draft(body=b"new" * 500) for _ in range(2)))
    assert [store.is_recent("T", 0, offset) for offset in (-1, 0, 1, 2, 3)] == [
        False, False, False, True, False,
    ]  # fmt: skip
    assert not store.is_recent("U", 0, 0)


def test_topics_are_those_that_have_queues(store: Store) -> None:
    assert store.topics() == set()
    put(store, draft("T"), draft("T", queue_id=1), draft("U"))
    assert store.topics() == {"T", "U"}
    store.remove_topic("T")
    assert store.topics() == {"U"}


# ---- topics that go


def test_a_removed_topic_is_gone_and_begins_at_zero_again(store: Store) -> None:
    put(store, *(draft(queue_id=n % 3) for n in range(9)), draft("stays"))
    assert store.remove_topic("T") == 3
    assert store.read("T", 0, 0).status is ReadStatus.NO_MATCHED_LOGIC_QUEUE
    assert store.max_offset("T", 1) == 0
    assert store.max_offset("stays", 0) == 1
    (appended,) = put(store, draft(body=b"new"))
    assert appended.queue_offset == 0
    assert bodies(store) == [b"new"]


def test_removing_a_topic_that_is_not_there_removes_nothing(store: Store) -> None:
    put(store, draft())
    assert store.remove_topic("U") == 0
    assert store.remove_topic("T") == 1
    assert store.remove_topic("T") == 0


def test_messages_of_a_removed_topic_stay_in_the_log(store: Store) -> None:
    (appended,) = put(store, draft(body=b"old", properties={"KEYS": "k"}))
    store.remove_topic("T")
    assert body_of(store.record_at(appended.physical_offset)) == b"old"
    assert [body_of(record) for record in store.find("T", "k")] == [b"old"]


# ---- durability, health, life


def test_what_is_flushed_is_told_to_listeners(store: Store) -> None:
    told: list[Flushed] = []
    store.on_flushed(told.append)
    appended = put(store, draft(), draft())
    assert store.flush()
    assert store.flushed == appended[-1].end
    assert told[-1] == Flushed(appended[-1].end)


def test_a_store_in_bad_health_refuses_and_says_why(store: Store) -> None:
    put(store, draft(body=b"before"))
    store.health.refuse("disk space", "the disk is full")
    with pytest.raises(StoreUnwritable, match="the disk is full"):
        store.append(draft())
    assert bodies(store) == [b"before"]
    store.health.allow("disk space")
    put(store, draft(body=b"after"))
    assert bodies(store) == [b"before", b"after"]


def test_a_closed_store_refuses_everything(store: Store) -> None:
    put(store, draft(properties={"KEYS": "k"}))
    store.close()
    store.close()
    with pytest.raises(StoreClosed):
        store.append(draft())
    with pytest.raises(StoreClosed):
        store.append_batch([draft()])
    with pytest.raises(StoreClosed):
        store.read("T", 0, 0)
    with pytest.raises(StoreClosed):
        store.record_at(0)
    with pytest.raises(StoreClosed):
        store.find("T", "k")
    with pytest.raises(StoreClosed):
        store.max_offset("T", 0)


def test_a_store_that_was_never_opened_refuses(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    for store in (MessageStore(config), MemoryStore(config)):
        with pytest.raises(StoreClosed):
            store.append(draft())


def test_records_are_sealed_if_the_settings_say_so(make_store: MakeStore) -> None:
    store = make_store(append_record_crc=True)
    put(store, draft(properties={"KEYS": "k"}), draft())
    put_batch(store, [draft(), draft()])
    found = store.read("T", 0, 0)
    assert len(found.records) == 4
    for record in found.records:
        check_seal(record)
    assert record_of(found.records[0]).decode_properties()["KEYS"] == "k"


# ---- the two against each other


@pytest.mark.parametrize("seal", [False, True])
def test_memory_and_files_hold_the_same_bytes_at_the_same_places(
    tmp_path: Path, seal: bool
) -> None:
    clock = FakeClock(MONDAY_NOON)
    config = small_config(tmp_path, append_record_crc=seal)
    choice = random.Random(3)
    with (
        MessageStore(config, clock=clock, background=False) as files,
        MemoryStore(config, clock=clock) as memory,
    ):
        for _ in range(150):
            drafts = [some_draft(choice) for _ in range(choice.choice([1, 1, 1, 3]))]
            drafts = [each._replace(queue_id=0, topic=drafts[0].topic) for each in drafts]
            assert files.append_batch(drafts) == memory.append_batch(drafts)
            clock.advance(choice.choice([0, 0.5]))
        assert files.log.written == memory.log.written
        places = range(files.log.written)
        assert [files.record_at(at) for at in places] == [memory.record_at(at) for at in places]
        for topic in ("T", "SCHEDULE_TOPIC_XXXX"):
            assert shown_codes(files, topic) == shown_codes(memory, topic)


def some_draft(choice: random.Random) -> RecordDraft:
    return draft(
        choice.choice(["T", "SCHEDULE_TOPIC_XXXX"]),
        choice.randbytes(choice.choice([0, 1, 300])),
        properties={"TAGS": choice.choice("ab"), "DELAY": str(choice.randrange(4))},
        sys_flag=int(choice.choice([SysFlag(0), SysFlag.PREPARED, SysFlag.COMMIT])),
    )
