"""The manifest of an archive: changes are atomic, wherever they are interrupted."""

from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from bolide.model.message_queue import MessageQueue
from bolide.spark.archive import table as table_module
from bolide.spark.archive.errors import LeaseLost, NoArchive, OtherSettings, TableBusy
from bolide.spark.archive.files import Files, LocalFiles
from bolide.spark.archive.table import ArchiveTable, Settings, TableWriter
from tests.unit.spark.archive.made import manifest_rows, plain_rows, stage, table_in
from tests.unit.spark.archive.mortal import Killed, MortalFiles

QUEUE = MessageQueue("orders", "broker-a", 0)


def test_rows_of_a_commit_are_there_for_both_kinds_of_readers(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    with table.writing(Settings()) as writer:
        writer.begin({QUEUE: 3})
        writer.commit("append", [stage(writer, 3, 9)])
        writer.commit("append", [stage(writer, 10, 12)])
    assert plain_rows(table.files) == manifest_rows(table) == ["orders 0 10 12", "orders 0 3 9"]
    state = table.state()
    assert (state.begin, state.covered, state.rows) == ({QUEUE: 3}, {QUEUE: 13}, 10)


def test_a_replaced_file_goes_and_the_covered_offsets_stay(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    with table.writing(Settings()) as writer:
        writer.commit("append", [stage(writer, 0, 4)])
        writer.commit("append", [stage(writer, 5, 9)])
        old = [each.path for each in writer.state().files_of()]
        writer.commit("compact", [stage(writer, 0, 9)], old)
    assert plain_rows(table.files) == manifest_rows(table) == ["orders 0 0 9"]
    assert table.state().covered == {QUEUE: 10}
    assert table.state().dropped == {}


def test_dropped_hours_are_remembered(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    with table.writing(Settings()) as writer:
        writer.commit("append", [stage(writer, 0, 4)])
        writer.commit("drop", [], [each.path for each in writer.state().files_of()])
    assert table.state().dropped == {QUEUE: 5}
    assert table.state().start_of(QUEUE) == table.state().next_of(QUEUE) == 5
    assert plain_rows(table.files) == []


def append(writer: TableWriter) -> None:
    writer.commit("append", [stage(writer, 10, 19), stage(writer, 0, 4, queue_id=1)])


def compact(writer: TableWriter) -> None:
    old = [each.path for each in writer.state().files_of()]
    writer.commit("compact", [stage(writer, 0, 9)], old)


def drop(writer: TableWriter) -> None:
    writer.commit("drop", [], [each.path for each in writer.state().files_of()])


BEFORE = ["orders 0 0 4", "orders 0 5 9"]


@pytest.mark.parametrize(
    ("change", "after"),
    [
        (append, [*BEFORE[:1], "orders 0 10 19", *BEFORE[1:], "orders 1 0 4"]),
        (compact, ["orders 0 0 9"]),
        (drop, []),
    ],
)
def test_a_change_happens_whole_or_not_at_all_wherever_it_is_cut(
    tmp_path: Path, change: Callable[[TableWriter], None], after: list[str]
) -> None:
    outcomes = []
    for life in range(100):
        table = table_in(tmp_path / str(life))
        with table.writing(Settings()) as writer:
            writer.commit("append", [stage(writer, 0, 4)])
            writer.commit("append", [stage(writer, 5, 9)])
        if not was_killed(table, change, life):
            break
        seen = manifest_rows(table)
        assert seen in (BEFORE, after), life  # a reader before the repair
        if change is append:
            assert len(set(plain_rows(table.files))) == len(plain_rows(table.files)), life
        (tmp_path / str(life) / "_bolide/writer.json").unlink(missing_ok=True)
        with table.writing(Settings()) as writer:
            assert not writer.files.names("_bolide/staging")
        assert plain_rows(table.files) == sorted(manifest_rows(table)), life
        assert sorted(manifest_rows(table)) in (BEFORE, sorted(after)), life
        outcomes.append(manifest_rows(table) == sorted(after))
    else:
        raise AssertionError("it never came to its end")
    assert outcomes == sorted(outcomes)  # from some step on the change is completed
    assert set(outcomes) == {False, True}


def was_killed(table: ArchiveTable, change: Callable[[TableWriter], None], life: int) -> bool:
    mortal = MortalFiles(cast(LocalFiles, table.files), 10**6)
    try:
        with ArchiveTable(cast(Files, mortal)).writing(Settings()) as writer:
            mortal.left = life
            change(writer)
            done = mortal.left
            mortal.left = 10**6
    except Killed:
        return True
    return done < 0


def test_many_commits_are_read_by_few_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_module, "STATE_EVERY", 5)
    monkeypatch.setattr(table_module, "KEPT_COMMITS", 10)
    table = table_in(tmp_path)
    with table.writing(Settings()) as writer:
        for number in range(33):
            writer.commit("append", [stage(writer, number, number)])
    assert table.state().rows == 33
    assert len(table.files.names("_bolide/commits")) <= 15
    with table.writing(Settings()) as writer:
        assert writer.state().next_of(QUEUE) == 33
        assert len(writer.state().files_of()) == 33


def test_two_do_not_write_at_once(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    with (
        table.writing(Settings()),
        pytest.raises(TableBusy, match="being written by run"),
        table.writing(Settings()),
    ):
        pass
    with table.writing(Settings()):
        pass


def test_a_writer_that_was_taken_over_commits_nothing(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    with table.writing(Settings()) as slow:
        staged = stage(slow, 0, 4)
        (tmp_path / "_bolide/writer.json").unlink()  # as a run that finds it stale does
        with table.writing(Settings()) as quick:
            quick.commit("append", [stage(quick, 0, 9)])
        with pytest.raises(LeaseLost):
            slow.commit("append", [staged])
    assert plain_rows(table.files) == manifest_rows(table) == ["orders 0 0 9"]


def test_a_writer_whose_hold_has_ended_changes_nothing(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    with table.writing(Settings()) as writer:
        pass
    with table.writing(), pytest.raises(LeaseLost):
        writer.commit("append", [stage(writer, 0, 4)])
    assert manifest_rows(table) == []


def test_a_writer_that_finds_out_too_late_takes_its_files_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_in(tmp_path)
    with table.writing(Settings()) as slow:
        (tmp_path / "_bolide/writer.json").unlink()
        with table.writing(Settings()) as quick:
            quick.commit("append", [stage(quick, 0, 9)])
        monkeypatch.setattr(slow._lease, "confirm", lambda: None)
        with pytest.raises(LeaseLost):
            slow.commit("append", [stage(slow, 0, 4)])
    assert plain_rows(table.files) == manifest_rows(table) == ["orders 0 0 9"]
    assert not table.files.names("_bolide/pending")


def test_a_change_that_is_done_is_not_undone_if_its_plan_comes_back(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    with table.writing(Settings()) as writer:
        hours = [stage(writer, 0, 4), stage(writer, 5, 9, hour="2026-07-01-06")]
        plan = tmp_path / "_bolide/pending/000000000001.json"
        kept: list[bytes] = []
        forget = writer._clean_up
        writer._clean_up = lambda it: (kept.append(plan.read_bytes()), forget(it))  # type: ignore[method-assign,assignment,func-returns-value]
        writer.commit("append", hours)
        writer._clean_up = forget  # type: ignore[method-assign]
        (old,) = (each.path for each in table.state().files_of() if each.hour.endswith("05"))
        writer.commit("compact", [stage(writer, 0, 4)], [old])
    plan.write_bytes(kept[0])  # as after a power cut that lost the deletion
    with table.writing():
        pass
    assert plain_rows(table.files) == manifest_rows(table) == ["orders 0 0 4", "orders 0 5 9"]


def test_columns_may_be_spelled_otherwise(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    with table.writing(Settings(value_schema="id bigint, name string")):
        pass
    with table.writing(Settings(value_schema="id  BIGINT,name STRING")):
        pass


def test_the_columns_of_a_table_are_fixed(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    with table.writing(Settings(value_schema="id bigint")):
        pass
    with pytest.raises(OtherSettings, match="value_schema=None"), table.writing(Settings()):
        pass


def test_a_path_without_an_archive_is_named(tmp_path: Path) -> None:
    table = table_in(tmp_path / "nowhere")
    with pytest.raises(NoArchive, match="nowhere"):
        table.state()
    with pytest.raises(NoArchive), table.writing():
        pass
    assert not (tmp_path / "nowhere").exists()
