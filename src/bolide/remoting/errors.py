"""Calls that got no answer. A peer that answers with a refusal raises `Refusal` instead."""

from bolide.errors import BolideError


class RemotingError(BolideError):
    """A call failed on the way; whether the peer acted on it is not known."""


class ConnectFailed(RemotingError):
    """No connection could be made; the peer has seen nothing."""

    def __init__(self, address: str, reason: object) -> None:
        super().__init__(f"cannot connect to {address}: {reason}")
        self.address = address


class ConnectionLost(RemotingError):
    """The connection closed before the answer came."""

    def __init__(self, peer: str) -> None:
        super().__init__(f"the connection to {peer} was closed")
        self.peer = peer


class CallTimedOut(RemotingError):
    """No answer within the time the caller gave."""

    def __init__(self, peer: str, code: int, seconds: float) -> None:
        super().__init__(f"{peer} did not answer request {code} within {seconds:g} s")
        self.peer = peer
        self.code = code
        self.seconds = seconds
