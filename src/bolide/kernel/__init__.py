"""The inner loops over records and index entries, compiled where the install could do it.

`reference`, `gathering` and `columns` say in plain Python what they do; `_records`, `_index` and
`_columns` are the same in Cython, byte for byte and error for error. The environment's
BOLIDE_KERNEL=python forces plain Python. May import `protocol` and `model`, nothing above.
"""

import os

from bolide.kernel.reference import SCHEDULE_TOPIC
from bolide.kernel.results import Check, QueueRun, Scan, Stop

try:
    if os.environ.get("BOLIDE_KERNEL") == "python":
        raise ImportError  # noqa: TRY301  as if there were none
    from bolide.kernel._columns import Columns
    from bolide.kernel._index import find_keys, put_keys, rebuild_slots
    from bolide.kernel._records import (
        body_crc,
        describe,
        gather,
        read_record,
        record_size,
        scan,
        write_record,
    )
    from bolide.kernel._sends import Sends, Slot
    from bolide.kernel._units import Units

    COMPILED = True
except ImportError:
    from bolide.kernel.columns import Columns
    from bolide.kernel.gathering import gather
    from bolide.kernel.reference import (
        body_crc,
        describe,
        find_keys,
        put_keys,
        read_record,
        rebuild_slots,
        record_size,
        scan,
        write_record,
    )
    from bolide.kernel.sends import Sends, Slot
    from bolide.kernel.units import Units

    COMPILED = False

__all__ = [
    "COMPILED",
    "SCHEDULE_TOPIC",
    "Check",
    "Columns",
    "QueueRun",
    "Scan",
    "Sends",
    "Slot",
    "Stop",
    "Units",
    "body_crc",
    "describe",
    "find_keys",
    "gather",
    "put_keys",
    "read_record",
    "rebuild_slots",
    "record_size",
    "scan",
    "write_record",
]
