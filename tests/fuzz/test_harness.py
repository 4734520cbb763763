"""The harness itself: it notices what it is there to notice."""

import pytest

from bolide.broker.metadata import topic_handlers
from bolide.protocol.codes import RequestCode
from bolide.protocol.errors import ProtocolError
from bolide.protocol.frame import Frame
from bolide.protocol.framing import encode_frame
from tests.fuzz import samples, servers
from tests.fuzz.agreement import Disagreement, agree
from tests.fuzz.targets import BY_NAME, TARGETS, Target


def refuse(text: str) -> None:
    raise ProtocolError(text)


def test_two_results_must_be_equal() -> None:
    agree(lambda: [memoryview(b"a")], lambda: [memoryview(b"a")])
    with pytest.raises(Disagreement):
        agree(lambda: 1, lambda: 2)


def test_two_refusals_must_be_the_same() -> None:
    agree(lambda: refuse("a"), lambda: refuse("a"), ProtocolError)
    with pytest.raises(Disagreement):
        agree(lambda: refuse("a"), lambda: refuse("b"), ProtocolError)
    with pytest.raises(Disagreement):
        agree(lambda: None, lambda: refuse("a"), ProtocolError)


def test_an_exception_that_is_not_allowed_is_a_finding() -> None:
    target = Target("x", lambda data: data[5], list, (ProtocolError,))
    with pytest.raises(IndexError):
        target(b"")


def test_a_request_that_fails_in_its_handler_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("nobody expected this")

    monkeypatch.setattr(topic_handlers, "system_topic_names", fail)
    request = Frame(code=RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, opaque=1)
    with pytest.raises(servers.RequestFailed, match="request 305 failed"):
        servers.broker(servers.input_of(encode_frame(request)))


def test_frames_become_inputs_and_frames_again() -> None:
    for wire in samples.frames():
        assert servers.wire_of(servers.input_of(wire)) == wire


def test_names_of_targets_are_unique() -> None:
    assert len(BY_NAME) == len(TARGETS)
