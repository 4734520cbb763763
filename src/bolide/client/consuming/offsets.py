"""Deprecated import path of `bolide.client.consumer.group.offsets`."""

import warnings

from bolide.client.consumer.group.offsets import LocalOffsets, OffsetStore, RemoteOffsets

warnings.warn(
    "bolide.client.consuming.offsets has moved to bolide.client.consumer.group.offsets",
    DeprecationWarning,
    stacklevel=2,
)

__all__ = ["LocalOffsets", "OffsetStore", "RemoteOffsets"]
