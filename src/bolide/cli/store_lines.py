"""What `bolide store dump` runs and prints."""

import os
import sys
from pathlib import Path

import msgspec

from bolide.store.dump import BodyForm, Bound, Selection, describe, dump


def selection_of(
    topic: str | None, queue: int | None, key: str | None, first: str | None, last: str | None
) -> Selection:
    """Raises ConfigError for what is no offset and no time."""
    return Selection(
        topic=topic,
        queue_id=queue,
        key=key,
        first=Bound.parse(first) if first else None,
        last=Bound.parse(last) if last else None,
    )


def print_records(path: Path, selection: Selection, limit: int | None, body: str) -> None:
    """Raises ConfigError, OSError."""
    encoder, form = msgspec.json.Encoder(), BodyForm(body)
    try:
        for count, record in enumerate(dump(path, selection, _warn)):
            if count == limit:
                break
            sys.stdout.buffer.write(encoder.encode(describe(record, form)) + b"\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # Who read along has seen enough. Python would complain of it once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _warn(text: str) -> None:
    print(f"{Path(sys.argv[0]).name}: {text}", file=sys.stderr)
