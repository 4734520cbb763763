"""Errors of calls without a response. A response that refuses raises `Refusal` instead."""

from bolide.errors import BolideError


class RemotingError(BolideError):
    """A call failed in transit; whether the peer executed it is unknown."""


class ConnectFailed(RemotingError):
    """No connection could be made; the peer has not received the request."""

    def __init__(self, address: str, reason: object) -> None:
        super().__init__(f"cannot connect to {address}: {reason}")
        self.address = address


class TlsFailed(ConnectFailed):
    """The TLS handshake failed."""


class UntrustedServer(TlsFailed):
    """The certificate of a server is not valid, not trusted or not for its host."""


class ConnectionLost(RemotingError):
    """The connection was closed before the response arrived."""

    def __init__(self, peer: str, reason: str = "") -> None:
        super().__init__(f"the connection to {peer} was closed" + (reason and f": {reason}"))
        self.peer = peer
        self.reason = reason


class CallTimedOut(RemotingError):
    """No response before the deadline."""

    def __init__(self, peer: str, code: int, seconds: float) -> None:
        super().__init__(f"{peer} did not answer request {code} within {seconds:g} s")
        self.peer = peer
        self.code = code
        self.seconds = seconds
