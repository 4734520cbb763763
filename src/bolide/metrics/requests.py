"""Latencies of the requests of a server, as a family; the same for all servers."""

from collections.abc import Iterable, Iterator

from bolide.distribution import Distribution
from bolide.metrics.families import Family, Kind, Scope, truth
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.remoting.latencies import OTHER, RPC_BOUNDS, RpcOutcome


def rpc_families(
    found: Iterable[tuple[RpcOutcome, Distribution]], scope: Scope
) -> Iterator[Family]:
    """How long requests took, by request code and outcome."""
    yield Family(
        "rocketmq_rpc_latency",
        Kind.HISTOGRAM,
        "Time from a request to its response.",
        [(_labels(outcome), each.within(RPC_BOUNDS)) for outcome, each in found],
        unit="milliseconds",
        labels=("protocol_type", "request_code", "response_code", "is_long_polling", "result"),
        scope=scope,
    )


def _labels(outcome: RpcOutcome) -> tuple[str, ...]:
    if outcome == OTHER:
        return "remoting", "other", "other", "false", "success"
    return (
        "remoting",
        code_name(RequestCode, outcome.request_code),
        code_name(ResponseCode, outcome.response_code),
        truth(outcome.is_long_polling),
        "oneway" if outcome.is_one_way else "success",
    )


def code_name(kind: type[RequestCode] | type[ResponseCode], code: int) -> str:
    """The name of a code as RocketMQ writes it in labels; unknown ones are numbers."""
    try:
        return kind(code).name.lower()
    except ValueError:
        return str(code)
