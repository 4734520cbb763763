"""The JSON form of a queue, also used as a map key."""

from bolide.model.message_queue import MessageQueue

__all__ = ["MessageQueue"]
