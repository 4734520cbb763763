"""The process that runs filter functions, and the frames it exchanges with its broker.

A frame is four bytes with its length and that many bytes of MessagePack.

`worker_pool` starts it as `python -m bolide.broker.filters.function_worker SECONDS BYTES`. Source
registered by an administrator runs only here. The process may use BYTES of memory beyond its own
footprint, and a question that takes longer than SECONDS ends the process.
"""

import inspect
import os
import signal
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from bolide.model.message import StoredMessage, SysFlag, without_compression
from bolide.protocol.compression import BadCompressedBody, CodecMissing, decompress
from bolide.protocol.record import Record, read_record

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


ENTRY = "accept"

Function = Callable[[StoredMessage], object]


def main() -> None:
    seconds, memory = float(sys.argv[1]), int(sys.argv[2])
    questions, answers = _own_pipes()
    _limit_memory(memory)
    try:
        _serve(questions, answers, seconds)
    except BaseException:  # noqa: BLE001  exit() in a function too
        sys.excepthook(*sys.exc_info())
    _end()


def _serve(questions: BinaryIO, answers: BinaryIO, seconds: float) -> None:
    functions: dict[str, Function] = {}
    own = os.getpid()
    _write(answers, Answer())
    while question := _read(questions):
        signal.setitimer(signal.ITIMER_REAL, seconds)  # its signal is not caught: the end
        answer = _answer(question, functions)
        if os.getpid() != own:
            return  # a function forked: one answer is enough
        signal.setitimer(signal.ITIMER_REAL, 0)
        _write(answers, answer)


def _end() -> None:
    """With all that functions have started, threads and processes: nobody else ends those."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def _answer(question: Question, functions: dict[str, Function]) -> Answer:
    if isinstance(question, Judge):
        return _judge(functions[question.name], question.records)
    return _load(question, functions)


def _load(question: Load, functions: dict[str, Function]) -> Answer:
    try:
        functions[question.name] = _made(question)
    except Exception as exc:  # noqa: BLE001  whatever the source does
        return Answer(error=_text(exc))
    return Answer()


def _made(question: Load) -> Function:
    place = f"<filter {question.name}>"
    names: dict[str, Any] = {"__name__": question.name}
    exec(compile(question.source, place, "exec"), names)  # noqa: S102  what this process is for
    function: Function | None = names.get(ENTRY)
    if function is None or not _is_fit(function):
        raise TypeError(f"it defines no function {ENTRY}(message) that returns True or False")
    return function


def _is_fit(function: Function) -> bool:
    """Whether it takes one message and returns no coroutine or generator, which are always true."""
    is_plain = callable(function) and not (
        inspect.iscoroutinefunction(function)
        or inspect.isgeneratorfunction(function)
        or inspect.isasyncgenfunction(function)
    )
    try:
        return is_plain and inspect.signature(function).bind(None) is not None
    except TypeError:
        return False
    except ValueError:  # some functions of C do not tell
        return True


def _judge(function: Function, records: list[bytes]) -> Answer:
    answer = Answer(verdicts=[])
    for data in records:
        try:
            answer.verdicts.append(bool(function(_message(data))))
        except MemoryError:
            os._exit(1)  # not the fault of this message alone
        except Exception as exc:  # noqa: BLE001  whatever the function does
            answer.verdicts.append(False)
            answer.failed += 1
            answer.error = _text(exc)
    return answer


def _message(data: bytes) -> StoredMessage:
    """As consumers get it."""
    record = read_record(data)
    assert isinstance(record, Record)
    message = record.message()
    if not message.sys_flag & SysFlag.COMPRESSED:
        return message
    try:
        body = decompress(message.body, message.sys_flag)
    except (BadCompressedBody, CodecMissing):
        return message
    plain = without_compression(message.sys_flag)
    return msgspec.structs.replace(message, body=body, sys_flag=plain)


def _text(exc: Exception) -> str:
    """What it says, with where in the function it was; what it says may be anything."""
    place, trace = "", exc.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.startswith("<filter "):
            place = f" in line {trace.tb_lineno}"
        trace = trace.tb_next
    try:
        said = str(exc)
    except Exception:  # noqa: BLE001  whatever the function does
        said = "it does not say why"
    return f"{type(exc).__name__}{place}: {said}"[:500].encode(errors="backslashreplace").decode()


def _own_pipes() -> tuple[BinaryIO, BinaryIO]:
    """The pipes of the broker; what functions print goes to its standard error."""
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    return questions, answers


def _limit_memory(extra: int) -> None:
    import resource  # noqa: PLC0415  there is none on every system

    with suppress(OSError, ValueError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        size = pages * os.sysconf("SC_PAGE_SIZE") + extra
        resource.setrlimit(resource.RLIMIT_AS, (size, size))


def _read(pipe: BinaryIO) -> Question | None:
    """The next question; None when the broker is gone."""
    head = pipe.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (size,) = LENGTH.unpack(head)
    data = pipe.read(size)
    return decode_question(data) if len(data) == size else None


def _write(pipe: BinaryIO, answer: Answer) -> None:
    with suppress(BrokenPipeError):  # the broker is gone, and the next read says so
        pipe.write(encode(answer))
        pipe.flush()


if __name__ == "__main__":
    main()
