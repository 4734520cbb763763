"""The worker process that runs filter functions, and the frames it exchanges with the broker.

A frame is a length of four bytes followed by that many bytes of MessagePack.

`worker_pool` starts the process as `python -m bolide.broker.filters.function_worker SECONDS BYTES`.
Source registered by an administrator runs only here. The process may use BYTES of memory beyond its
own footprint, and a request that takes longer than SECONDS kills the process.
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
MAX_REPLY = 1024 * 1024
ENTRY = "accept"

Function = Callable[[StoredMessage], object]


class LoadRequest(msgspec.Struct, tag=True):
    """Compile the source of a function, replacing an earlier one of that name."""

    name: str
    source: str


class EvaluateRequest(msgspec.Struct, tag=True):
    """Evaluate a function on records."""

    name: str
    records: list[bytes]


class WorkerReply(msgspec.Struct):
    verdicts: list[bool] = []
    failed: int = 0
    """Number of records for which the function raised; they are not accepted."""
    error: str = ""
    """The last error of a record, or the reason why the function cannot be loaded."""


WorkerRequest = LoadRequest | EvaluateRequest

_encoder = msgspec.msgpack.Encoder()
_request_decoder = msgspec.msgpack.Decoder(WorkerRequest)
_reply_decoder = msgspec.msgpack.Decoder(WorkerReply)


def encode(message: WorkerRequest | WorkerReply) -> bytes:
    data = _encoder.encode(message)
    return LENGTH.pack(len(data)) + data


def decode_request(data: bytes) -> WorkerRequest:
    request: WorkerRequest = _request_decoder.decode(data)
    return request


def decode_reply(data: bytes) -> WorkerReply:
    """Raises msgspec.MsgspecError: a function may have written to the reply pipe."""
    return _reply_decoder.decode(data)


def main() -> None:
    seconds, memory = float(sys.argv[1]), int(sys.argv[2])
    requests, replies = _own_pipes()
    _limit_memory(memory)
    try:
        _serve(requests, replies, seconds)
    except BaseException:  # noqa: BLE001  boundary to user code, which may call exit()
        sys.excepthook(*sys.exc_info())
    _kill_group()


def _serve(requests: BinaryIO, replies: BinaryIO, seconds: float) -> None:
    functions: dict[str, Function] = {}
    own_pid = os.getpid()
    _write(replies, WorkerReply())
    while request := _read(requests):
        signal.setitimer(signal.ITIMER_REAL, seconds)  # SIGALRM is not caught: it kills the process
        reply = _handle(request, functions)
        if os.getpid() != own_pid:
            return  # a function forked: only the parent replies
        signal.setitimer(signal.ITIMER_REAL, 0)
        _write(replies, reply)


def _kill_group() -> None:
    """Kill the process group: threads and processes started by functions have no other owner."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def _handle(request: WorkerRequest, functions: dict[str, Function]) -> WorkerReply:
    if isinstance(request, EvaluateRequest):
        return _evaluate(functions[request.name], request.records)
    return _load(request, functions)


def _load(request: LoadRequest, functions: dict[str, Function]) -> WorkerReply:
    try:
        functions[request.name] = _compile(request)
    except Exception as exc:  # noqa: BLE001  boundary to user code
        return WorkerReply(error=_describe(exc))
    return WorkerReply()


def _compile(request: LoadRequest) -> Function:
    location = f"<filter {request.name}>"
    names: dict[str, Any] = {"__name__": request.name}
    exec(compile(request.source, location, "exec"), names)  # noqa: S102  what this process is for
    function: Function | None = names.get(ENTRY)
    if function is None or not _is_valid(function):
        raise TypeError(f"it defines no function {ENTRY}(message) that returns True or False")
    return function


def _is_valid(function: Function) -> bool:
    """Whether the function takes one message and is no coroutine or generator function, whose
    results are always true."""
    is_plain = callable(function) and not (
        inspect.iscoroutinefunction(function)
        or inspect.isgeneratorfunction(function)
        or inspect.isasyncgenfunction(function)
    )
    try:
        return is_plain and inspect.signature(function).bind(None) is not None
    except TypeError:
        return False
    except ValueError:  # some C functions have no signature
        return True


def _evaluate(function: Function, records: list[bytes]) -> WorkerReply:
    reply = WorkerReply(verdicts=[])
    for data in records:
        try:
            reply.verdicts.append(bool(function(_message(data))))
        except MemoryError:
            os._exit(1)  # not the fault of this message alone
        except Exception as exc:  # noqa: BLE001  boundary to user code
            reply.verdicts.append(False)
            reply.failed += 1
            reply.error = _describe(exc)
    return reply


def _message(data: bytes) -> StoredMessage:
    """Decode a record as consumers do."""
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


def _describe(exc: Exception) -> str:
    """Describe an exception with the line in the function; str() of the exception may fail."""
    location, trace = "", exc.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.startswith("<filter "):
            location = f" in line {trace.tb_lineno}"
        trace = trace.tb_next
    try:
        text = str(exc)
    except Exception:  # noqa: BLE001  boundary to user code
        text = "no message"
    return (
        f"{type(exc).__name__}{location}: {text}"[:500].encode(errors="backslashreplace").decode()
    )


def _own_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Return the pipes to the broker; output of functions goes to its standard error."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with Path(os.devnull).open("rb") as empty:
        os.dup2(empty.fileno(), 0)
    os.dup2(2, 1)
    return requests, replies


def _limit_memory(extra: int) -> None:
    import resource  # noqa: PLC0415  not available on every system

    with suppress(OSError, ValueError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        size = pages * os.sysconf("SC_PAGE_SIZE") + extra
        resource.setrlimit(resource.RLIMIT_AS, (size, size))


def _read(pipe: BinaryIO) -> WorkerRequest | None:
    """Read the next request; None when the broker has closed the pipe."""
    head = pipe.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (size,) = LENGTH.unpack(head)
    data = pipe.read(size)
    return decode_request(data) if len(data) == size else None


def _write(pipe: BinaryIO, reply: WorkerReply) -> None:
    with suppress(BrokenPipeError):  # the broker has exited; the next read returns None
        pipe.write(encode(reply))
        pipe.flush()


if __name__ == "__main__":
    main()
