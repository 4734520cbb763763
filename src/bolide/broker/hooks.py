"""What operators may hook into the broker: sends before and after, deliveries after."""

from dataclasses import dataclass
from typing import Protocol

from bolide.protocol.headers.pull import PullHeader
from bolide.protocol.headers.send import SendHeader
from bolide.remoting.dispatch import Reply


class SendHook(Protocol):
    """Sees every send; with one of these no send takes the fast path."""

    def before_send(self, peer: str, header: SendHeader, body: bytes) -> None:
        """May raise a Refusal: the message is not taken then."""
        ...

    def after_send(self, peer: str, header: SendHeader, reply: Reply) -> None: ...


class ConsumeHook(Protocol):
    """Sees every delivery."""

    def after_pull(self, peer: str, header: PullHeader, count: int, size: int) -> None: ...


@dataclass(slots=True)
class Hooks:
    """All hooks of a broker."""

    send: tuple[SendHook, ...] = ()
    consume: tuple[ConsumeHook, ...] = ()
