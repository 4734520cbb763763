"""All operations; importing this module declares them."""

from bolide.operations import (
    consumer_deletion,
    consumer_members,
    consumer_settings,
    consumers,
    offsets,
)
from bolide.operations.declaration import OPERATIONS

__all__ = [
    "OPERATIONS",
    "consumer_deletion",
    "consumer_members",
    "consumer_settings",
    "consumers",
    "offsets",
]
