import pytest

from bolide.kernel import Check, scan
from bolide.kernel.records import SCHEDULE_TOPIC, record_size, write_record
from bolide.kernel.units import UNIT
from bolide.store.appending import delivery_time
from tests.support.store import draft

DELAYS = (0, 1000, 5000, 60_000)


@pytest.mark.parametrize(
    "level",
    ["1", "2", "3", "4", "9" * 9, "9" * 10, "0", "00", "01", "x", "-1", "1.5", "\u0663"],
)
def test_a_delivery_time_is_the_one_a_rebuild_finds(level: str) -> None:
    message = draft(SCHEDULE_TOPIC.decode(), properties={"DELAY": level})
    record = bytearray(record_size(message))
    write_record(record, 0, message, 0, 0, 5_000_000)
    (run,) = scan(record, 0, len(record), 0, check=Check.NONE, delays=DELAYS).runs
    _, _, rebuilt = UNIT.unpack(run.entries)
    assert delivery_time(message, 5_000_000, 0, DELAYS) == rebuilt
