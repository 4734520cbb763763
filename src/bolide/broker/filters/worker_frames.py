"""What a broker and a process that runs filter functions tell each other over pipes.

A frame is four bytes with its length and that many bytes of MessagePack.
"""

import struct

import msgspec

LENGTH = struct.Struct(">I")
MAX_ANSWER = 1024 * 1024


class Load(msgspec.Struct, tag=True):
    """Make a function of its source; of one name the last one counts."""

    name: str
    source: str


class Judge(msgspec.Struct, tag=True):
    """Say of records which of them a function accepts."""

    name: str
    records: list[bytes]


class Answer(msgspec.Struct):
    verdicts: list[bool] = []
    failed: int = 0
    """For how many records the function raised; these are not accepted."""
    error: str = ""
    """The last error: of a record, or why there is no function."""


Question = Load | Judge

_encoder = msgspec.msgpack.Encoder()
_questions = msgspec.msgpack.Decoder(Question)
_answers = msgspec.msgpack.Decoder(Answer)


def encode(message: Question | Answer) -> bytes:
    data = _encoder.encode(message)
    return LENGTH.pack(len(data)) + data


def decode_question(data: bytes) -> Question:
    question: Question = _questions.decode(data)
    return question


def decode_answer(data: bytes) -> Answer:
    """Raises msgspec.MsgspecError: a function may have written to where answers go."""
    return _answers.decode(data)
