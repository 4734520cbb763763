"""Refusals: one class for each response code."""

import pytest

from bolide.errors import BolideError
from bolide.protocol.codes import ResponseCode
from bolide.protocol.refusals import (
    NoPermission,
    Refusal,
    ServerError,
    TopicNotFound,
    UnknownRefusal,
    refusal_for,
)


@pytest.mark.parametrize("code", sorted(Refusal.by_code))
def test_a_code_gives_the_class_a_server_raises_for_it(code: int) -> None:
    refusal = refusal_for(code, "why")
    assert type(refusal) is Refusal.by_code[code]
    assert (refusal.code, refusal.remark, str(refusal)) == (code, "why", "why")
    assert isinstance(refusal, BolideError)


def test_success_is_no_refusal() -> None:
    assert ResponseCode.SUCCESS not in Refusal.by_code


@pytest.mark.parametrize("code", [-1006, 9999, 200050])
def test_a_code_without_a_class_is_kept(code: int) -> None:
    refusal = refusal_for(code, "why")
    assert isinstance(refusal, UnknownRefusal)
    assert (refusal.code, refusal.remark) == (code, "why")
    assert str(refusal) == f"response code {code}: why"
    assert not refusal.retriable


def test_an_unknown_code_leaves_the_class_alone() -> None:
    refusal_for(9999, None)
    assert UnknownRefusal.code == Refusal.code == ResponseCode.SYSTEM_ERROR


def test_a_response_without_a_remark_gives_an_empty_one() -> None:
    assert refusal_for(ResponseCode.NO_PERMISSION, None).remark == ""


def test_a_class_says_whether_to_try_again() -> None:
    assert TopicNotFound.retriable
    assert ServerError.retriable
    assert not NoPermission.retriable


def test_two_classes_cannot_share_a_code() -> None:
    with pytest.raises(TypeError, match="Second and TopicNotFound share"):

        class Second(Refusal, code=ResponseCode.TOPIC_NOT_EXIST):
            pass

    assert Refusal.by_code[ResponseCode.TOPIC_NOT_EXIST] is TopicNotFound


def test_a_subclass_without_a_code_of_its_own_keeps_its_parents() -> None:
    class RetryTopicNotFound(TopicNotFound):
        pass

    assert RetryTopicNotFound("x").code == ResponseCode.TOPIC_NOT_EXIST
    assert RetryTopicNotFound.retriable
    assert Refusal.by_code[ResponseCode.TOPIC_NOT_EXIST] is TopicNotFound
