"""The harness itself: it notices what it is there to notice."""

from collections import Counter
from importlib import import_module
from typing import Any, ClassVar

import pytest

from bolide.broker.metadata import topic_handlers
from bolide.kernel import COMPILED
from bolide.protocol.codes import RequestCode
from bolide.protocol.errors import ProtocolError
from bolide.protocol.frame import Frame
from bolide.protocol.framing import FrameDecoder, encode_frame
from tests.fuzz import samples, servers
from tests.fuzz.agreement import Disagreement, agree
from tests.fuzz.targets import BY_NAME, TARGETS, Target
from tests.support.broker_core import BrokerCore


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


class Spied(BrokerCore):
    """The cores that a target made."""

    made: ClassVar[list[BrokerCore]] = []

    def __init__(self, *given: Any, **settings: Any) -> None:
        super().__init__(*given, **settings)
        self.made.append(self)


@pytest.mark.skipif(not COMPILED, reason="there is no fast path")
@pytest.mark.parametrize("name", ["fast-path", "signed-fast-path"])
def test_the_fast_path_serves_all_kinds_of_its_requests(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(servers, "BrokerCore", Spied)
    target, served = BY_NAME[name], Counter[str]()
    for seed in target.seeds():
        Spied.made.clear()
        target.run(seed)
        figures = Spied.made[-1].fast_path.fall_throughs
        served["sends"] += figures.served_sends
        served["pulls"] += figures.served_pulls
        served["ends"] += is_end_served(seed, figures)
    assert min(served[kind] for kind in ("sends", "pulls", "ends")) > 0, served


def is_end_served(seed: bytes, figures: Any) -> bool:
    frames = FrameDecoder().feed(servers.wire_of(seed))
    is_end = frames[-1].code == RequestCode.END_TRANSACTION
    return is_end and len(frames) in (2, 4) and "TRANSACTION" not in figures.counts


@pytest.mark.skipif(not COMPILED, reason="there is no compiled code to compare")
def test_a_wrong_signature_that_is_taken_for_right_is_a_finding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernels = import_module("tests.fuzz.kernels")

    class Trusting(kernels._signatures.SigningKey):  # type: ignore[misc, name-defined]
        def is_signed(self, data: bytes, position: int) -> bool:
            return True

    monkeypatch.setattr(kernels._signatures, "SigningKey", Trusting)
    with pytest.raises(Disagreement, match="takes the signature"):
        kernels.signed_frame(kernels.signed_seeds()[0])


def test_frames_become_inputs_and_frames_again() -> None:
    for wire in samples.frames():
        assert servers.wire_of(servers.input_of(wire)) == wire


def test_names_of_targets_are_unique() -> None:
    assert len(BY_NAME) == len(TARGETS)
