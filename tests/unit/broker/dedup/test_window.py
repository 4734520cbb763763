"""Window lengths as topics write them, and the keys a window retains."""

import time

import pytest

from bolide.broker.dedup.window import Window, WindowLength, digest, find_key
from bolide.store.appending import Appended


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("1", WindowLength(messages=1)),
        ("10000000", WindowLength(messages=10_000_000)),
        ("1s", WindowLength(seconds=1)),
        ("10m", WindowLength(seconds=600)),
        ("2h", WindowLength(seconds=7200)),
        ("7d", WindowLength(seconds=604_800)),
    ],
)
def test_spans_are_numbers_of_messages_or_times(text: str, length: WindowLength) -> None:
    assert WindowLength.parse(text) == length


@pytest.mark.parametrize(
    "text", ["", "0", "0s", "10000001", "8d", "169h", "-1", "+1", "1.5h", "10 m", "10M", "ms", "٣"]
)
def test_other_spans_are_refused_with_what_they_may_be(text: str) -> None:
    with pytest.raises(ValueError, match="1 to 10000000, or a time, 1s to 7d"):
        WindowLength.parse(text)


@pytest.mark.parametrize(
    ("properties", "key"),
    [
        (b"DEDUP_KEY\x01k\x02", b"k"),
        (b"TAGS\x01a\x02DEDUP_KEY\x01k", b"k"),
        (b"DEDUP_KEY\x01a\x01b\x02TAGS\x01c\x02", b"a\x01b"),
        (b"DEDUP_KEY\x01first\x02DEDUP_KEY\x01last\x02", b"last"),
        (b"DEDUP_KEY\x01\x02", None),
        (b"XDEDUP_KEY\x01k\x02", None),
        (b"TAGS\x01DEDUP_KEY\x02", None),
        (b"", None),
    ],
)
def test_the_key_is_the_one_that_consumers_see(properties: bytes, key: bytes | None) -> None:
    expected = None if key is None else digest(key)
    assert find_key(properties) == find_key(memoryview(properties)) == expected


def place(number: int, generation: int = 0) -> Appended:
    return Appended(number * 100, 100, number, 5000 + number, generation)


def filled(count: int) -> Window:
    window = Window(WindowLength(messages=100))
    for number in range(count):
        window.add(digest(b"%d" % number), place(number), number)
    return window


def held(window: Window, among: int = 10) -> list[int]:
    return [number for number in range(among) if digest(b"%d" % number) in window]


def test_a_key_tells_the_place_of_its_message_while_it_is_inside() -> None:
    window = filled(3)
    assert window.find(digest(b"2"), 2) == place(2)
    assert window.find(digest(b"2"), 3) is None
    assert window.find(digest(b"3"), 0) is None


def test_a_window_forgets_from_its_beginning() -> None:
    window = filled(10)
    window.evict_expired(3)
    assert held(window) == [3, 4, 5, 6, 7, 8, 9]
    window.evict_expired(3)
    window.evict_oldest(2)
    assert held(window) == [5, 6, 7, 8, 9]
    window.evict_oldest(9)
    assert len(window) == 0


def test_a_key_that_is_out_of_date_but_not_forgotten_yet_begins_again() -> None:
    window = filled(3000)
    window.evict_expired(2500)
    assert len(window) == 2000, "a broker does not stand still for it"
    key = digest(b"2000")
    assert window.find(key, 2500) is None
    window.add(key, place(5000), 5000)
    assert window.find(key, 2500) == place(5000)
    for _ in range(3):
        window.evict_expired(2500)
    assert held(window, 3000) == [2000, *range(2500, 3000)]
    window.evict_expired(5000)
    assert held(window, 3000) == [2000]


def test_what_the_store_takes_back_is_forgotten_from_the_end() -> None:
    window = filled(4)
    # Appended after the failure, before it was reported.
    window.add(digest(b"4"), place(4, generation=1), 4)
    window.discard_lost(position=200, generation=1)
    assert held(window) == [0, 1, 4]
    window.evict_expired(4)
    assert held(window) == [4]


def test_what_was_taken_back_may_come_again_and_go_again() -> None:
    window = filled(4)
    window.discard_lost(position=200, generation=1)
    for number in (2, 3):
        window.add(digest(b"%d" % number), place(number, generation=1), number)
    assert (held(window), len(window)) == ([0, 1, 2, 3], 4)
    window.discard_lost(position=300, generation=2)
    assert held(window) == [0, 1, 2]
    window.evict_expired(3)
    assert (held(window), len(window)) == ([], 0)


def test_many_keys_that_begin_again_take_no_longer_than_new_ones() -> None:
    count = 40_000
    window = filled(count)
    began = time.process_time()
    filled(count)
    new = time.process_time() - began
    began = time.process_time()
    for number in reversed(range(count)):
        window.add(digest(b"%d" % number), place(count + number), count + number)
    assert time.process_time() - began < 10 * new
    assert len(window) == count
    window.evict_oldest(count - 1)
    assert held(window, count) == [0], "the one that came last"


def test_a_window_forgets_as_many_at_once_as_is_asked() -> None:
    window = filled(3000)
    window.evict_expired(2500, at_least=2200)
    assert len(window) == 800
