"""The inner loops over frames, records, messages, sends, pulls and index entries, compiled where
possible.

A module whose name begins with `_` is the compiled twin of the plain Python beside it, byte for
byte and error for error: `_records` of `reference`, `_index` of `index_entries`, `_frames` of
`protocol.framing`, the others of the same name.
The environment's BOLIDE_KERNEL=python forces plain Python. May import `protocol` and `model`,
nothing above.
"""

import os

from bolide.kernel.reference import SCHEDULE_TOPIC
from bolide.kernel.results import Check, QueueRun, Scan, Stop
from bolide.kernel.send_frames import SendAnswer

try:
    if os.environ.get("BOLIDE_KERNEL") == "python":
        raise ImportError  # noqa: TRY301  as if there were none
    from bolide.kernel._columns import Columns
    from bolide.kernel._frames import decode_frame, encode_frame
    from bolide.kernel._gathering import gather
    from bolide.kernel._index import find_keys, put_keys, rebuild_slots
    from bolide.kernel._messages import joined_flags, read_messages
    from bolide.kernel._pulls import PullAnswers, is_resident, read_plain_pull
    from bolide.kernel._records import (
        body_crc,
        describe,
        read_record,
        record_size,
        scan,
        write_record,
    )
    from bolide.kernel._send_frames import SendTemplate, read_answers
    from bolide.kernel._sends import Sends, Slot
    from bolide.kernel._sieves import Sieve
    from bolide.kernel._units import Units

    COMPILED = True
except ImportError:
    from bolide.kernel.columns import Columns
    from bolide.kernel.gathering import gather
    from bolide.kernel.messages import joined_flags, read_messages
    from bolide.kernel.pulls import PullAnswers, is_resident, read_plain_pull
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
    from bolide.kernel.send_frames import SendTemplate, read_answers
    from bolide.kernel.sends import Sends, Slot
    from bolide.kernel.sieves import Sieve
    from bolide.kernel.units import Units
    from bolide.protocol.framing import decode_frame, encode_frame

    COMPILED = False

__all__ = [
    "COMPILED",
    "SCHEDULE_TOPIC",
    "Check",
    "Columns",
    "PullAnswers",
    "QueueRun",
    "Scan",
    "SendAnswer",
    "SendTemplate",
    "Sends",
    "Sieve",
    "Slot",
    "Stop",
    "Units",
    "body_crc",
    "decode_frame",
    "describe",
    "encode_frame",
    "find_keys",
    "gather",
    "is_resident",
    "joined_flags",
    "put_keys",
    "read_answers",
    "read_messages",
    "read_plain_pull",
    "read_record",
    "rebuild_slots",
    "record_size",
    "scan",
    "write_record",
]
