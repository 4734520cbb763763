"""What a broker tells a NameServer of itself, plain or compressed (`RegisterBrokerBody`).

Compressed form, one zlib stream; every length and count is a 4-byte integer:

    length, data version as JSON
    count, then for each topic: length, "name read write perm filterType attributes"
    length, filter servers as a JSON array
    count, then for each static topic: length, its queue mapping as JSON     (5.0 and newer)
"""

import struct
import zlib

import msgspec

from bolide.protocol import fastjson
from bolide.protocol.bodies.data_version import DataVersion
from bolide.protocol.bodies.queues import QueueMapping
from bolide.protocol.bodies.topics import MappedTopicConfigTable, TopicConfig
from bolide.protocol.errors import ProtocolError
from bolide.protocol.fastjson import Struct

MAX_INFLATED_SIZE = 128 * 1024 * 1024
"""A registration that inflates to more is refused: nobody has a million topics on one broker."""

_INT = struct.Struct(">i")
_TOPIC_WORDS = ("topicName", "readQueueNums", "writeQueueNums", "perm", "topicFilterType")


class RegisterBrokerBody(Struct, kw_only=True):
    """Body of REGISTER_BROKER; brokers before 3.0.11 say nothing of filter servers (None)."""

    topic_config_serialize_wrapper: MappedTopicConfigTable = msgspec.field(
        default_factory=MappedTopicConfigTable
    )
    filter_server_list: list[str] | None = msgspec.field(default_factory=list)


def compress(body: RegisterBrokerBody, *, with_mapping: bool = True) -> bytes:
    """Write the compressed form; 4.x NameServers know no mapping section."""
    topics = body.topic_config_serialize_wrapper
    parts = [_block(fastjson.encode(topics.data_version))]
    parts.append(_INT.pack(len(topics.topic_config_table)))
    parts += [_block(_topic_line(topic)) for topic in topics.topic_config_table.values()]
    parts.append(_block(fastjson.encode(body.filter_server_list or [])))
    if with_mapping:
        mappings = topics.topic_queue_mapping_info_map.values()
        parts.append(_INT.pack(len(mappings)))
        parts += [_block(fastjson.encode(mapping)) for mapping in mappings]
    return zlib.compress(b"".join(parts), level=9)


def decompress(data: bytes, *, with_mapping: bool) -> RegisterBrokerBody:
    """Read the compressed form."""
    reader = _Blocks(_inflate(data))
    version = fastjson.decode(reader.block(), DataVersion)
    topics = [_topic_of(reader.block()) for _ in range(reader.count())]
    filter_servers = fastjson.decode(reader.block(), list[str])
    mappings = []
    if with_mapping:
        mappings = [fastjson.decode(reader.block(), QueueMapping) for _ in range(reader.count())]
    return RegisterBrokerBody(
        topic_config_serialize_wrapper=MappedTopicConfigTable(
            data_version=version,
            topic_config_table={topic.topic_name: topic for topic in topics},
            topic_queue_mapping_info_map={mapping.topic: mapping for mapping in mappings},
        ),
        filter_server_list=filter_servers,
    )


class _Blocks:
    """Reads the counts and length-prefixed blocks of the inflated form."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def count(self) -> int:
        try:
            (value,) = _INT.unpack_from(self._data, self._at)
        except struct.error as exc:
            raise ProtocolError("a compressed registration ends too early") from exc
        self._at += _INT.size
        if not 0 <= value <= len(self._data):
            raise ProtocolError(f"a compressed registration announces a length of {value}")
        return int(value)

    def block(self) -> bytes:
        end = self.count() + self._at
        block = self._data[self._at : end]
        if len(block) < end - self._at:
            raise ProtocolError("a compressed registration ends too early")
        self._at = end
        return block


def _inflate(data: bytes) -> bytes:
    stream = zlib.decompressobj()
    try:
        inflated = stream.decompress(data, MAX_INFLATED_SIZE + 1)
    except zlib.error as exc:
        raise ProtocolError(f"a compressed registration does not inflate: {exc}") from exc
    if len(inflated) > MAX_INFLATED_SIZE:
        raise ProtocolError(f"a compressed registration inflates to over {MAX_INFLATED_SIZE} bytes")
    if not stream.eof:
        raise ProtocolError("a compressed registration is cut short")
    return inflated


def _block(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


def _topic_line(topic: TopicConfig) -> bytes:
    attributes = fastjson.encode(topic.attributes).decode()
    numbers = f"{topic.read_queue_nums} {topic.write_queue_nums} {topic.perm}"
    return f"{topic.topic_name} {numbers} {topic.topic_filter_type} {attributes}".encode()


def _topic_of(line: bytes) -> TopicConfig:
    words = line.decode(errors="replace").split(" ", 5)
    if len(words) < len(_TOPIC_WORDS):
        raise ProtocolError(f"a topic line that is none: {line[:80]!r}")
    values = dict(zip(_TOPIC_WORDS, words, strict=False))
    try:
        topic = msgspec.convert(values, TopicConfig, strict=False)
    except msgspec.ValidationError as exc:
        raise ProtocolError(f"a topic line that is none: {line[:80]!r} ({exc})") from exc
    topic.attributes = _attributes(words[5:])
    return topic


def _attributes(rest: list[str]) -> dict[str, str]:
    return fastjson.decode(rest[0], dict[str, str]) if rest and rest[0].strip() else {}
