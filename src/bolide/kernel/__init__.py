"""Codecs and data structures of the hot path, compiled where possible.

The package covers frames, signatures, records, messages, columns, index entries, queue units and
SQL sieves. A module whose name begins with `_` is the compiled version of a plain-Python module,
with the same bytes and errors: `_records` of `records`, `_index` of `index_entries`, `_frames` of
`protocol.framing`, every other one of the module of the same name. The environment variable
BOLIDE_KERNEL=python forces plain Python.
"""

import os

from bolide.kernel.records import SCHEDULE_TOPIC
from bolide.kernel.results import Check, QueueRun, Scan, Stop
from bolide.kernel.send_frames import Credentials, SendAnswer

try:
    if os.environ.get("BOLIDE_KERNEL") == "python":
        raise ImportError  # noqa: TRY301  as if not built
    from bolide.kernel._columns import Columns
    from bolide.kernel._frames import decode_frame, encode_frame
    from bolide.kernel._gathering import gather, is_resident
    from bolide.kernel._index import find_keys, put_keys, rebuild_slots
    from bolide.kernel._messages import joined_flags, read_messages
    from bolide.kernel._records import (
        body_crc,
        describe,
        read_record,
        record_size,
        scan,
        write_record,
    )
    from bolide.kernel._send_frames import SendTemplate, read_answers
    from bolide.kernel._sieves import Sieve
    from bolide.kernel._signatures import SigningKey
    from bolide.kernel._units import Units

    COMPILED = True
except ImportError:
    from bolide.kernel.columns import Columns
    from bolide.kernel.gathering import gather, is_resident
    from bolide.kernel.messages import joined_flags, read_messages
    from bolide.kernel.records import (
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
    from bolide.kernel.sieves import Sieve
    from bolide.kernel.signatures import SigningKey
    from bolide.kernel.units import Units
    from bolide.protocol.framing import decode_frame, encode_frame

    COMPILED = False

__all__ = [
    "COMPILED",
    "SCHEDULE_TOPIC",
    "Check",
    "Columns",
    "Credentials",
    "QueueRun",
    "Scan",
    "SendAnswer",
    "SendTemplate",
    "Sieve",
    "SigningKey",
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
    "read_record",
    "rebuild_slots",
    "record_size",
    "scan",
    "write_record",
]
