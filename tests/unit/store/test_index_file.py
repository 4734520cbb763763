import errno
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.kernel import records as reference
from bolide.protocol.tags import index_hash
from bolide.store import index_file
from bolide.store.disk import Disk
from bolide.store.errors import DamagedFile
from bolide.store.index_file import IndexFile, index_file_size

SLOTS, CAPACITY = 3, 12
BEGIN = 1_700_000_000_000
EVER = (0, 2**63 - 1)
NAME = "20231114221320000"


def item(key_hash: int, offset: int, seconds: float = 0) -> bytes:
    return struct.pack(">Iqq", key_hash, offset, BEGIN + round(seconds * 1000))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "index" / NAME


@pytest.fixture
def file(path: Path) -> Iterator[IndexFile]:
    found = IndexFile.create(path, SLOTS, CAPACITY, Disk())
    yield found
    found.close()


def reopened(path: Path) -> IndexFile:
    return IndexFile.open(path, SLOTS, CAPACITY)


def test_a_file_has_the_length_java_gives_it(file: IndexFile, path: Path) -> None:
    assert index_file_size(5_000_000, 20_000_000) == 420_000_040
    assert path.stat().st_size == 40 + SLOTS * 4 + CAPACITY * 20
    assert (file.count, file.empty, file.full) == (1, True, False)


def test_the_key_of_the_specification_has_its_slot(path: Path) -> None:
    file = IndexFile.create(path, 5_000_000, 2, Disk())
    file.put(item(index_hash("TopicTest", "OrderID188"), 4096))
    file.close()
    data = path.read_bytes()
    assert data[40 + 4 * 1271670 : 44 + 4 * 1271670] == b"\0\0\0\1"
    assert data[40 + 4 * 5_000_000 + 20 :] == struct.pack(">iqii", 1231271670, 4096, 0, 0)


def test_the_header_follows_every_put(file: IndexFile, path: Path) -> None:
    assert file.put(item(1, 100) + item(4, 200, 1.5)) == 2
    assert file.put(item(2, 300, 2.999)) == 1
    header = struct.unpack_from(">qqqqii", path.read_bytes())
    assert header == (BEGIN, BEGIN + 2999, 100, 300, 2, 4)


def test_a_reopened_file_knows_what_it_held(file: IndexFile, path: Path) -> None:
    file.put(item(1, 100) + item(4, 200, 1) + item(1, 300, 2))
    other = reopened(path)
    assert (other.count, other.begin_offset, other.end_offset) == (4, 100, 300)
    assert other.find(1, 64, *EVER) == [300, 100]
    other.close()


def test_a_full_file_takes_no_more(file: IndexFile) -> None:
    assert file.put(b"".join(item(1, n) for n in range(15))) == CAPACITY - 1
    assert file.full
    assert file.put(item(1, 15)) == 0
    assert file.end_offset == CAPACITY - 2


def test_a_file_takes_over_from_the_one_before(file: IndexFile, path: Path) -> None:
    file.put(item(1, 100) + item(1, 200, 5))
    after = IndexFile.create(path.with_name("20231114221320001"), SLOTS, CAPACITY, Disk())
    after.follow(file)
    assert (after.begin_timestamp, after.begin_offset) == (BEGIN + 5000, 200)
    assert (after.end_timestamp, after.end_offset) == (BEGIN + 5000, 200)
    after.put(item(1, 300, 9))
    assert (after.begin_timestamp, after.begin_offset) == (BEGIN + 9000, 300)
    assert after.find(1, 64, BEGIN + 9000, BEGIN + 9000) == [300]
    after.close()


@pytest.mark.parametrize(
    ("begin", "end", "overlaps"),
    [(0, 999, False), (0, 1000, True), (5000, 9000, True), (5001, 9000, False), (2000, 3000, True)],
)
def test_a_file_is_of_interest_if_its_times_overlap(
    file: IndexFile, begin: int, end: int, overlaps: bool
) -> None:
    file.put(item(1, 100, 1) + item(1, 200, 5))
    assert file.overlaps(BEGIN + begin, BEGIN + end) is overlaps


@pytest.mark.parametrize(
    ("begin", "end", "found"),
    [
        (0, 9000, [3, 2, 1]),
        (1, 2000, [2]),
        (1000, 1000, [2]),
        (1001, 2000, []),  # 1,900 ms is filed as one second
        (2000, 2999, []),
        (3000, 3000, [3]),
    ],
)
def test_times_are_compared_in_whole_seconds_after_the_first(
    file: IndexFile, begin: int, end: int, found: list[int]
) -> None:
    file.put(item(1, 1, 0) + item(1, 2, 1.9) + item(1, 3, 3))
    assert file.find(1, 64, BEGIN + begin, BEGIN + end) == found


def test_a_full_disk_is_an_error_and_leaves_nothing(path: Path) -> None:
    class Full(Disk):
        def allocate(self, path: Path, size: int) -> int:
            raise OSError(errno.ENOSPC, "no space")

    with pytest.raises(OSError, match="no space"):
        IndexFile.create(path, SLOTS, CAPACITY, Full())
    assert not path.exists()


def test_a_file_of_another_length_is_damaged(file: IndexFile, path: Path) -> None:
    with pytest.raises(DamagedFile):
        IndexFile.open(path, SLOTS, CAPACITY + 1)


@pytest.mark.parametrize(("stored", "count"), [(0, 1), (-5, 1), (2**31 - 1, CAPACITY)])
def test_a_damaged_count_is_brought_into_range(
    file: IndexFile, path: Path, stored: int, count: int
) -> None:
    with path.open("r+b") as raw:
        raw.seek(36)
        raw.write(struct.pack(">i", stored))
    other = reopened(path)
    assert other.count == count
    other.close()


def test_entries_behind_the_end_of_the_log_are_forgotten(file: IndexFile, path: Path) -> None:
    file.put(b"".join(item(n % 4, n * 100, n) for n in range(6)))
    whole = path.read_bytes()
    file.put(item(0, 600, 6))
    file.truncate(600)
    assert path.read_bytes() == whole
    file.truncate(250)
    assert (file.count, file.end_offset, file.end_timestamp) == (4, 200, BEGIN + 2000)
    assert [file.find(key, 64, *EVER) for key in range(4)] == [[0], [100], [200], []]
    file.truncate(1)
    assert (file.count, file.slots_in_use) == (2, 1)


def test_a_file_goes_back_to_its_count_whatever_the_disk_kept(file: IndexFile, path: Path) -> None:
    file.put(b"".join(item(n % 4, n * 100, n) for n in range(4)))
    whole = path.read_bytes()
    file.put(b"".join(item(n % 4, n * 100, n) for n in range(4, 7)))
    with path.open("r+b") as raw:
        raw.seek(32)
        raw.write(b"\x7f" * (8 + 4 * SLOTS))  # counts and slots
        raw.seek(40 + 4 * SLOTS + 5 * 20)
        raw.write(b"\x55" * 3 * 20)  # entries that were not synced
    file.restore(5, BEGIN + 3000, 300, Disk())
    assert path.read_bytes() == whole


class Killed(Exception):
    pass


class Mortal:
    """A view whose process dies after some stores; `torn` lets half of an entry through."""

    def __init__(self, view: memoryview, stores: int, *, torn: bool) -> None:
        self.view = view
        self.left = stores
        self.torn = torn

    def __len__(self) -> int:
        return len(self.view)

    def __getitem__(self, where: slice) -> memoryview:
        return self.view[where]

    def __setitem__(self, where: slice, data: bytes) -> None:
        if not self.left:
            if self.torn and len(data) == 20:
                self.view[where.start : where.start + 10] = data[:10]
            raise Killed
        self.left -= 1
        self.view[where] = data


OLD = [item(1, 100), item(4, 200, 1), item(2, 300, 2)]
NEW = [item(1, 400, 3), item(0, 400, 3), item(4, 500, 4), item(1, 500, 4)]
FOUND = {0: [400], 1: [500, 400, 100], 2: [300], 4: [500, 200]}


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize(
    ("old", "stores"),  # four entries, four slots, three stores of the header, two for the begin
    [*((OLD, stores) for stores in range(11)), *(([], stores) for stores in range(13))],
)
def test_a_process_killed_at_any_store_loses_nothing(
    file: IndexFile,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    old: list[bytes],
    stores: int,
    torn: bool,
) -> None:
    monkeypatch.setattr(index_file, "put_keys", reference.put_keys)
    file.put(b"".join(old))
    file._view = Mortal(file._view, stores, torn=torn)  # type: ignore[assignment]
    with pytest.raises(Killed):
        file.put(b"".join(NEW))
    survivor = reopened(path)
    survivor.mend()
    before = {key: survivor.find(key, 64, *EVER) for key in FOUND}
    expected = {key: [at for at in found if at < 400] for key, found in FOUND.items()}
    if old:
        assert {key: [at for at in before[key] if at < 400] for key in FOUND} == expected
    redone = [each for each in NEW if struct.unpack_from(">q", each, 4)[0] >= survivor.end_offset]
    survivor.put(b"".join(redone))
    after = {key: survivor.find(key, 64, *EVER) for key in FOUND}
    assert after == {key: [at for at in found if old or at >= 400] for key, found in FOUND.items()}
    survivor.close()


def test_mending_touches_nothing_in_a_file_that_is_whole(file: IndexFile, path: Path) -> None:
    file.put(b"".join(OLD))
    whole = path.read_bytes()
    assert file.mend() == 0
    assert path.read_bytes() == whole


def test_an_entry_of_zeros_is_taken_back_too(file: IndexFile, path: Path) -> None:
    """The very first key of a log may have the hash 0, and then all of its entry is 0."""
    empty = path.read_bytes()
    reference.put_keys(file._view, SLOTS, CAPACITY, 1, BEGIN, item(0, 0) + item(1, 0))
    assert file.mend() == 2
    assert path.read_bytes() == empty


@given(
    data=st.binary(min_size=40 + SLOTS * 4 + CAPACITY * 20).map(
        lambda data: data[: 40 + SLOTS * 4 + CAPACITY * 20]
    ),
    calls=st.lists(
        st.sampled_from(
            [
                lambda file: file.put(item(1, 100) + item(2, 200)),
                lambda file: file.find(1, 64, *EVER),
                lambda file: file.find(2, 3, BEGIN, BEGIN + 1000),
                lambda file: file.mend(),
                lambda file: file.truncate(150),
                lambda file: file.restore(3, BEGIN, 100, Disk()),
            ]
        ),
        min_size=1,
        max_size=6,
    ),
)
def test_no_bytes_make_it_fail_or_run_on(
    tmp_path_factory: pytest.TempPathFactory,
    data: bytes,
    calls: list[Callable[[IndexFile], object]],
) -> None:
    path = tmp_path_factory.mktemp("index") / NAME
    path.write_bytes(data)
    file = reopened(path)
    for call in calls:
        call(file)
    found = file.find(1, 64, *EVER)
    assert len(found) < CAPACITY
    assert 1 <= file.count <= CAPACITY
    file.close()
