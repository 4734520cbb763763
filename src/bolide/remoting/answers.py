"""The fast path of a client's connections: answers to plain sends, straight from the bytes."""

from bolide.remoting.connection import Connection


class PlainAnswers:
    """A `FastPath` that answers nothing and resolves the calls of its connection."""

    def serve(self, data: bytes, position: int, connection: Connection, until: float) -> int:
        return connection.take_answers(data, position)
