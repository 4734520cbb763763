"""Texts of the admin commands in the format of RocketMQ's tools, and documents of messages."""

import base64
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bolide.logs import one_line
from bolide.model.properties import PropertyName
from bolide.private_files import SECRET_MODE, create_new_file, make_directory
from bolide.protocol.bodies.message_queue import MessageQueue

if TYPE_CHECKING:
    from bolide.admin.message_history import Track
    from bolide.model.message import StoredMessage

UNKNOWN = "N/A"
"""Shown for what a server did not tell."""

_FILE_NAME = re.compile(r"[0-9A-Za-z_-]{1,128}")


def by_queue(table: Mapping[MessageQueue, object]) -> list[dict[str, object]]:
    """One object per queue: the fields of the queue and of its value."""
    return [
        msgspec.to_builtins(queue) | msgspec.to_builtins(value)
        for queue, value in sorted(table.items(), key=lambda item: item[0])
    ]


def time_text(timestamp_ms: int, *, millis: bool = True) -> str:
    """Local time in the format of RocketMQ's tools; the number itself if out of range."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1000).astimezone()
    except (ValueError, OverflowError, OSError):  # a client may have sent any number
        return str(timestamp_ms)
    text = f"{moment:%Y-%m-%d %H:%M:%S}"
    return f"{text},{timestamp_ms % 1000:03d}" if millis else text


def java_map(values: Mapping[str, object]) -> str:
    """`{a=1, b=2}`."""
    return "{" + ", ".join(f"{key}={value}" for key, value in values.items()) + "}"


def java_text(value: object) -> str:
    """A value as Java prints it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)


def total_text(total: int | None, least: int | None) -> str:
    """A sum over brokers; what those told that answered, if one did not, is marked."""
    if total is None:
        return UNKNOWN if least is None else f">={least}"
    return str(total)


def print_field(name: str, value: object) -> None:
    """`#name`, a tab, and the value."""
    print(f"#{name}\t{one_line(java_text(value))}")


def print_message(
    message: "StoredMessage", tracks: "list[Track] | None", charset: str | None
) -> None:
    """Print a message in the format of RocketMQ's tools; the body is saved to a file.

    Args:
        tracks: the state of the message in each group; None if it is not known.
        charset: of the body, which is printed if it is given.
    """
    keys = message.properties.get(PropertyName.KEYS)
    lines = {
        "OffsetID": message.offset_message_id,
        "Topic": message.topic,
        "Tags": f"[{java_text(message.tags)}]",
        "Keys": f"[{java_text(keys)}]",
        "Queue ID": message.queue_id,
        "Queue Offset": message.queue_offset,
        "CommitLog Offset": message.physical_offset,
        "Reconsume Times": message.reconsume_times,
        "Born Timestamp": time_text(message.born_timestamp),
        "Store Timestamp": time_text(message.store_timestamp),
        "Born Host": message.born_host,
        "Store Host": message.store_host,
        "System Flag": message.sys_flag,
        "Properties": java_map(message.properties),
        "Message Body Path": _save_body(message),
    }
    if charset is not None:
        lines["Message Body"] = message.body.decode(charset, "replace")
    for title, value in lines.items():
        print(f"{title + ':':<20} {one_line(str(value))}")
    print()
    for track in tracks or []:
        reason = java_text(track.reason)
        print(one_line(f"MessageTrack [consumerGroup={track.group}, trackType={track.kind}, "
                       f"exceptionDesc={reason}]"))  # fmt: skip
    if tracks is None:
        print("WARN: Consumers are not known")
    elif not tracks:
        print("WARN: No Consumer")


def document_of(message: "StoredMessage") -> dict[str, object]:
    """A message for JSON output: the body as base64, and as text if it is UTF-8."""
    try:
        text = message.body.decode()
    except UnicodeDecodeError:
        text = None
    return {
        "messageId": message.message_id,
        "offsetMessageId": message.offset_message_id,
        "topic": message.topic,
        "tags": message.tags,
        "keys": message.keys,
        "brokerName": message.broker_name,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "reconsumeTimes": message.reconsume_times,
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "bornHost": str(message.born_host),
        "storeHost": str(message.store_host),
        "sysFlag": message.sys_flag,
        "flag": message.flag,
        "properties": message.properties,
        "bodyText": text,
        "body": base64.b64encode(message.body).decode(),
    }


def line_of(message: "StoredMessage", body: str | None) -> str:
    """A message on one line, in the format of Java's tools, with its body as text if given."""
    text = f"MSGID: {message.message_id} {java_message(message)}"
    return one_line(f"{text} BODY: {'NOT PRINT BODY' if body is None else body}")


def java_message(message: "StoredMessage") -> str:
    """A message without its body, as Java prints it."""
    facts = {
        "brokerName": message.broker_name,
        "queueId": message.queue_id,
        "storeSize": message.size,
        "queueOffset": message.queue_offset,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp,
        "bornHost": f"/{message.born_host}",
        "storeTimestamp": message.store_timestamp,
        "storeHost": f"/{message.store_host}",
        "msgId": message.offset_message_id,
        "commitLogOffset": message.physical_offset,
        "bodyCRC": message.body_crc,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "topic": f"'{message.topic}'",
        "flag": message.flag,
        "properties": java_map(message.properties),
    }
    text = ", ".join(f"{name}={value}" for name, value in facts.items())
    return one_line(f"MessageExt [{text}]")


def _save_body(message: "StoredMessage") -> Path:
    """Save the body to a new file that only its owner can read."""
    import tempfile  # noqa: PLC0415  other commands start faster without it

    directory = Path(tempfile.gettempdir()) / "rocketmq" / "msgbodys"
    make_directory(directory)
    # The unique id is the sender's text: it must not lead to another directory.
    name = message.message_id
    path = directory / (name if _FILE_NAME.fullmatch(name) else message.offset_message_id)
    # Another user may have made the directory, and a file of that name in it to read it later.
    path.unlink(missing_ok=True)
    with create_new_file(path, SECRET_MODE) as file:
        file.write(message.body)
    return path
