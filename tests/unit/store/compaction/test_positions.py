from pathlib import Path

from bolide.store.compaction.positions import NOTHING, Positions
from bolide.store.disk import Disk


def positions_in(path: Path) -> Positions:
    positions = Positions(path / "position-checkpoint", Disk())
    positions.load()
    return positions


def test_positions_are_saved_as_rocketmq_saves_them(tmp_path: Path) -> None:
    positions = positions_in(tmp_path)
    assert positions.get("T", 0) == NOTHING
    positions.set("T", 0, 41)
    positions.set("T_1", 0, 7)
    assert positions_in(tmp_path).get("T", 0) == 41
    written = (tmp_path / "position-checkpoint").read_bytes()
    assert written == b'{"queueOffsetMap":{"T_0":41,"T_1_0":7}}'
    positions.forget("T")
    assert (positions_in(tmp_path).get("T", 0), positions_in(tmp_path).get("T_1", 0)) == (-1, 7)


def test_a_table_of_rocketmq_is_read(tmp_path: Path) -> None:
    text = '{\n\t"empty":false,"queueOffsetMap":{"T_0":12\n\t}\n}'
    (tmp_path / "position-checkpoint").write_text(text)
    assert positions_in(tmp_path).get("T", 0) == 12


def test_a_damaged_table_counts_as_its_backup_or_as_empty(tmp_path: Path) -> None:
    positions = positions_in(tmp_path)
    positions.set("T", 0, 1)
    positions.set("T", 0, 2)
    (tmp_path / "position-checkpoint").write_bytes(b'{"queueOff')
    assert positions_in(tmp_path).get("T", 0) == 1
    (tmp_path / "position-checkpoint.bak").write_bytes(b"\x00")
    assert positions_in(tmp_path).get("T", 0) == NOTHING
