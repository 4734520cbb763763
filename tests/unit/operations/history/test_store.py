import math
import sqlite3
from pathlib import Path

import pytest

from bolide.operations.history.store import Family, HistoryStore, Key, Tier

LOAD = Family("load", (Tier(5, 60), Tier(20, 400), Tier(100, 4000)))
A, B = Key("rate", "a"), Key("rate", "b")
T0 = 1_000_000


def means(
    store: HistoryStore, key: Key, tier: int, begin: int, end: int, step: int
) -> list[float | None]:
    (found,) = store.read(LOAD, [key], begin=begin, end=end, step=step, tier=LOAD.tiers[tier])
    return found


def test_coarser_tiers_are_means_of_the_finer_and_gaps_stay_gaps(tmp_path: Path) -> None:
    path = tmp_path / "history" / "history.db"
    store = HistoryStore(path, [LOAD])
    for at in range(0, 60, 5):
        if not 20 <= at < 40:  # nothing was sampled then
            store.write(LOAD, T0 + at, {A: float(at)} if at < 10 else {A: float(at), B: 7.0})
    store.write(LOAD, T0 + 60, {A: 1.0})

    assert means(store, A, 0, T0, T0 + 65, 5)[:9] == [0, 5, 10, 15, None, None, None, None, 40]
    assert means(store, A, 1, T0, T0 + 60, 20) == [7.5, None, 47.5]
    assert means(store, B, 1, T0, T0 + 60, 20) == [7.0, None, 7.0], "of the steps that have it"
    # What no coarse row covers yet comes from the finer ones.
    assert means(store, A, 1, T0 + 40, T0 + 80, 20) == [47.5, 1.0]
    assert means(store, A, 2, T0, T0 + 100, 100) == [pytest.approx((7.5 * 20 + 47.5 * 20 + 5) / 45)]
    assert means(store, Key("rate", "none"), 1, T0, T0 + 60, 20) == [None] * 3
    store.close()

    store = HistoryStore(path, [LOAD])  # after a restart, long after
    assert means(store, A, 1, T0, T0 + 60, 20) == [7.5, None, 47.5]
    store.write(LOAD, T0 + 300, {A: 3.0})
    assert means(store, A, 2, T0, T0 + 400, 100)[1:] == [None, None, 3.0]
    files = list(path.parent.iterdir())
    assert len(files) > 1  # the log of the database is one of its own
    assert [each.name for each in files if each.stat().st_mode & 0o077] == []
    store.close()
    path.chmod(0o640)  # as earlier versions made it
    HistoryStore(path, [LOAD]).close()
    assert path.stat().st_mode & 0o077 == 0


def test_samples_go_when_their_time_is_over_and_the_slots_of_gone_series_are_free(
    tmp_path: Path,
) -> None:
    path = tmp_path / "history.db"
    store = HistoryStore(path, [LOAD])
    for at in range(0, 500, 5):
        store.write(LOAD, T0 + at, {A: 1.0})
    store.prune(T0 + 500)
    assert means(store, A, 0, T0, T0 + 430, 5) == [None] * 86
    assert means(store, A, 0, T0 + 440, T0 + 500, 5) == [1.0] * 12
    assert means(store, A, 1, T0, T0 + 500, 20)[0] is None
    assert means(store, A, 1, T0 + 120, T0 + 500, 20) == [1.0] * 19

    later = T0 + 20_000
    store.write(LOAD, later, {B: 2.0})
    store.prune(later)
    store.write(LOAD, later + 5, {Key("rate", "c"): 3.0})
    assert means(store, A, 0, later, later + 10, 5) == [None, None], "not the values of c"
    with sqlite3.connect(path) as db:
        assert [*db.execute("SELECT name, slot FROM slots ORDER BY name")] == [("b", 1), ("c", 0)]
    db.close()
    store.close()


def test_the_file_stays_under_its_bound(tmp_path: Path) -> None:
    bound = 200_000
    path = tmp_path / "history.db"
    store = HistoryStore(path, [LOAD], max_size=bound)
    keys = [Key("rate", f"series-{number}") for number in range(500)]
    for at in range(0, 1500, 5):  # values that do not compress
        store.write(LOAD, T0 + at, {k: math.sin(at * 1.7 + n) for n, k in enumerate(keys)})
    before = path.stat().st_size
    store.prune(T0 + 60)  # a time at which nothing is too old
    assert before > 2 * bound
    assert means(store, keys[0], 0, T0 + 1495, T0 + 1500, 5)[0] == pytest.approx(math.sin(2541.5))
    store.close()
    assert path.stat().st_size <= bound


def test_a_damaged_file_is_put_aside_and_the_latest_document_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    path.write_bytes(b"this is no database" * 1000)
    store = HistoryStore(path, [LOAD])
    store.keep_document("latest", b"one", 1)
    store.keep_document("latest", b"two", 2)
    store.close()
    store = HistoryStore(path, [LOAD])
    assert store.find_document("latest") == (2, b"two")
    assert store.find_document("other") is None
    store.close()
    assert (tmp_path / "history.db.damaged").read_bytes().startswith(b"this is no")


@pytest.mark.parametrize(("seconds", "step"), [(15, 5), (60, 5), (61, 20), (4000, 100), (9e9, 100)])
def test_a_range_is_read_from_the_finest_tier_that_reaches_so_far(
    seconds: float, step: int
) -> None:
    assert LOAD.tier_for(seconds).step == step
