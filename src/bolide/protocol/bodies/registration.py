"""A broker's registration at a NameServer, plain or compressed (`RegisterBrokerBody`).

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

MAX_INFLATED_SIZE = 32 * 1024 * 1024
"""Limit of a decompressed registration; 100,000 topics take less than a third of it."""

MAX_TOPICS = 100_000
"""Most topics in one registration: as many as fit into the frame of a plain one."""

_INT = struct.Struct(">i")
_PIECE = 64 * 1024
_TOPIC_WORDS = ("topicName", "readQueueNums", "writeQueueNums", "perm", "topicFilterType")


class RegisterBrokerBody(Struct, kw_only=True):
    """Body of REGISTER_BROKER; brokers before 3.0.11 send no filter servers (None)."""

    topic_config_serialize_wrapper: MappedTopicConfigTable = msgspec.field(
        default_factory=MappedTopicConfigTable
    )
    filter_server_list: list[str] | None = msgspec.field(default_factory=list)


def compress(body: RegisterBrokerBody, *, with_mapping: bool = True) -> bytes:
    """Encode the compressed form; 4.x NameServers do not accept a mapping section."""
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
    """Decode the compressed form."""
    reader = _Blocks(data)
    version = fastjson.decode(reader.block(), DataVersion)
    topics = [_topic_of(reader.block()) for _ in range(_topic_count(reader))]
    filter_servers = fastjson.decode(reader.block(), list[str])
    mappings = []
    if with_mapping:
        mappings = [
            fastjson.decode(reader.block(), QueueMapping) for _ in range(_topic_count(reader))
        ]
    reader.finish()
    return RegisterBrokerBody(
        topic_config_serialize_wrapper=MappedTopicConfigTable(
            data_version=version,
            topic_config_table={topic.topic_name: topic for topic in topics},
            topic_queue_mapping_info_map={mapping.topic: mapping for mapping in mappings},
        ),
        filter_server_list=filter_servers,
    )


class _Blocks:
    """Decompresses the stream incrementally and reads counts and length-prefixed blocks."""

    def __init__(self, data: bytes) -> None:
        self._stream = zlib.decompressobj()
        self._data = data
        self._at = 0
        self._inflated = bytearray()
        self._total = 0

    def count(self) -> int:
        (value,) = _INT.unpack(self._take(_INT.size))
        if not 0 <= value <= MAX_INFLATED_SIZE:
            raise ProtocolError(f"a compressed registration announces a length of {value}")
        return int(value)

    def block(self) -> bytes:
        return self._take(self.count())

    def finish(self) -> None:
        """Decompress to the end, which verifies the checksum."""
        while not self._stream.eof:
            self._inflate()
            self._inflated.clear()

    def _next_input(self) -> bytes:
        """Return the input that zlib has not consumed, or the next piece."""
        if self._stream.unconsumed_tail:
            return self._stream.unconsumed_tail
        begin, self._at = self._at, self._at + _PIECE
        if begin >= len(self._data):
            raise ProtocolError("a compressed registration is cut short")
        return self._data[begin : self._at]

    def _take(self, size: int) -> bytes:
        while len(self._inflated) < size:
            self._inflate()
        taken = bytes(self._inflated[:size])
        del self._inflated[:size]
        return taken

    def _inflate(self) -> None:
        if self._stream.eof:
            raise ProtocolError("a compressed registration ends too early")
        try:
            piece = self._stream.decompress(self._next_input(), _PIECE)
        except zlib.error as exc:
            raise ProtocolError(f"a compressed registration does not inflate: {exc}") from exc
        self._inflated += piece
        self._total += len(piece)
        if self._total > MAX_INFLATED_SIZE:
            raise ProtocolError(
                f"a compressed registration inflates to over {MAX_INFLATED_SIZE} bytes"
            )


def _topic_count(reader: _Blocks) -> int:
    count = reader.count()
    if count > MAX_TOPICS:
        raise ProtocolError(f"a registration of {count} topics is over the limit of {MAX_TOPICS}")
    return count


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
