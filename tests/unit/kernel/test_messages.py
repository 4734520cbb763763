"""Decoding of a whole reply: both kernels return the same messages or raise the same error."""

import copy
import pickle
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

from bolide.errors import BolideError
from bolide.kernel import messages as reference
from bolide.model.message import Host, StoredMessage
from bolide.protocol.record import encode_blank
from bolide.protocol.record_errors import BadMagic, TruncatedRecord
from tests.unit.kernel.drafts import DRAFT, ENCODED, V6, record
from tests.unit.kernel.test_twins import mutated, sound_drafts

try:
    from bolide.kernel import _messages as compiled
except ImportError:
    compiled = None  # type: ignore[assignment]

needs_compiled = pytest.mark.skipif(compiled is None, reason="no compiled kernel")
REPLY = b"".join(record(DRAFT, number, 4096 + number * len(ENCODED)) for number in range(3))
TAGGED = b"".join(
    record(DRAFT._replace(properties=text), number, 0)
    for number, text in enumerate(
        [b"TAGS\x01A\x02", b"TAGS\x01B", b"", b"TAGS\x01B\x02TAGS\x01A\x02", b"TAGS\x01\x02A\x01A"]
    )
)


@pytest.fixture(params=["reference", pytest.param("compiled", marks=needs_compiled)])
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    return reference if request.param == "reference" else compiled


def test_messages_are_as_stored_and_know_where_they_came_from(kernel: ModuleType) -> None:
    first, *others = kernel.read_messages(REPLY, "broker-a", 1, 20)
    assert [message.queue_offset for message in others] == [1, 2]
    assert (first.topic, first.body, first.tags) == ("TopicTest", b"hello", "TagA")
    assert (first.broker_name, first.min_offset, first.lag) == ("broker-a", 1, 20)
    assert (first.born_host, first.size, first.version) == (
        Host("10.0.0.5", 54321),
        len(ENCODED),
        1,
    )


def test_neighbours_of_other_topics_and_hosts_are_told_apart(kernel: ModuleType) -> None:
    other = DRAFT._replace(topic=b"t" * 128, born_host=V6, store_host=V6)
    data = record(DRAFT, 0, 0) + record(other, 1, 0) + record(DRAFT, 2, 0)
    found = kernel.read_messages(data)
    assert [len(message.topic) for message in found] == [9, 128, 9]
    assert [message.born_host.port for message in found] == [54321, 10911, 54321]
    assert [message.store_host.ip for message in found] == ["10.0.0.1", "2001:db8::1", "10.0.0.1"]
    assert [message.version for message in found] == [1, 2, 1]


def test_other_tags_are_left_out(kernel: ModuleType) -> None:
    wanted = kernel.read_messages(TAGGED, tags=frozenset({"A", "C"}))
    assert [message.queue_offset for message in wanted] == [0, 3]
    assert len(kernel.read_messages(TAGGED, tags=frozenset())) == 5


def test_a_message_can_be_pickled_and_copied_before_its_properties_are_read(
    kernel: ModuleType,
) -> None:
    first, second, third = kernel.read_messages(REPLY)
    assert pickle.loads(pickle.dumps(first)) == first
    assert copy.deepcopy(second) == second
    assert copy.copy(third) == third


def test_what_is_no_record_is_refused_by_its_place(kernel: ModuleType) -> None:
    with pytest.raises(TruncatedRecord, match=str(2 * len(ENCODED))):
        kernel.read_messages(REPLY[:-1])
    with pytest.raises(BadMagic, match=str(len(REPLY))):
        kernel.read_messages(REPLY + encode_blank(8))


def test_the_flags_of_all_records_are_joined(kernel: ModuleType) -> None:
    flagged = [record(DRAFT._replace(sys_flag=flag), 0, 0) for flag in (0x1, 0x4, 0x200)]
    assert kernel.joined_flags(b"".join(flagged)) == 0x205
    assert kernel.joined_flags(b"") == 0


def outcome(call: Callable[..., Any], *arguments: Any) -> object:
    """The result or exception of a call; messages as all fields with their types."""
    try:
        found = call(*arguments)
    except BolideError as exc:
        return type(exc), str(exc), vars(exc)
    return [_parts(each) for each in found] if isinstance(found, list) else found


def _parts(message: StoredMessage) -> list[object]:
    """Access the properties, which decodes them."""
    assert isinstance(message.properties, dict)
    return [(type(value), value) for value in structs.astuple(message)]


replies = st.lists(sound_drafts, max_size=4).map(
    lambda drafts: b"".join(record(draft, number, 4096) for number, draft in enumerate(drafts))
)
anything = st.one_of(
    replies, replies.flatmap(mutated), st.binary(max_size=200), st.just(ENCODED + encode_blank(8))
)
some_tags = st.sampled_from([(), frozenset(), frozenset({"A"}), frozenset({"A", "\ufffd", None})])


@needs_compiled
@given(data=anything, tags=some_tags, offsets=st.sampled_from([(None, None), (0, 2**70)]))
@example(REPLY[:-1], (), (None, None))
@example(TAGGED, frozenset({"A"}), (None, None))
def test_the_twins_agree(data: bytes, tags: Any, offsets: tuple[Any, Any]) -> None:
    arguments = (data, "broker-a", *offsets, tags)
    assert outcome(compiled.read_messages, *arguments) == outcome(
        reference.read_messages, *arguments
    )


@needs_compiled
@given(data=st.one_of(anything, st.binary(max_size=100).map(lambda noise: bytes(4) + noise)))
def test_the_twins_join_the_flags_of_anything_alike(data: bytes) -> None:
    assert compiled.joined_flags(data) == reference.joined_flags(data)


@needs_compiled
def test_the_twins_differ_where_they_should() -> None:
    """Check that the comparison detects differences."""
    assert outcome(reference.read_messages, REPLY) != outcome(reference.read_messages, REPLY[:-1])
    assert outcome(reference.read_messages, REPLY) != outcome(reference.read_messages, REPLY, "b")
