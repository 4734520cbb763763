from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.signature import UNSIGNED_VERSION, signature
from bolide.remoting.signing import Signer

SECRET = "12345678"


def test_the_signature_of_the_specification() -> None:
    fields = {"topic": "TopicTest", "AccessKey": "RocketMQ"}
    assert signature(fields, b"", SECRET.encode()) == "0jiwhsaYp5ObE5GObbZH1I8/FT4="


def test_a_request_is_signed_with_its_fields_and_body() -> None:
    fields = {"topic": "TopicTest"}
    request = Frame(code=RequestCode.PULL_MESSAGE, fields=fields, body=b"x")
    Signer("RocketMQ", SECRET, "token").before("peer", request)
    assert request.fields is not None
    assert request.fields["AccessKey"] == "RocketMQ"
    assert request.fields["SecurityToken"] == "token"
    expected = {"topic": "TopicTest", "AccessKey": "RocketMQ", "SecurityToken": "token"}
    assert request.fields["Signature"] == signature(expected, b"x", SECRET.encode())
    assert fields == {"topic": "TopicTest"}


def test_a_request_without_fields_gets_those_of_the_signature() -> None:
    request = Frame(code=RequestCode.HEART_BEAT)
    Signer("RocketMQ", SECRET).before("peer", request)
    assert request.fields is not None
    assert request.fields.keys() == {"AccessKey", "Signature"}


def test_a_query_by_unique_key_is_signed_so_that_4_9_and_5_x_agree() -> None:
    request = Frame(fields={"key": "k", "_UNIQUE_KEY_QUERY": "true"})
    Signer("RocketMQ", SECRET).before("peer", request)
    assert request.fields is not None
    plain = {"key": "k", "AccessKey": "RocketMQ"}
    assert request.fields["Signature"] == signature(plain, b"", SECRET.encode())
    assert request.version == UNSIGNED_VERSION
