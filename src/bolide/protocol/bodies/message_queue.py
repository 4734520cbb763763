"""The JSON form of a queue; it also stands as the key of maps."""

from bolide.model.message_queue import MessageQueue

__all__ = ["MessageQueue"]
