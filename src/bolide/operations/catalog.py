"""All operations; importing this module declares them."""

# ruff: noqa: F401  one line for each module, which declares its operations

import bolide.operations.dashboard
import bolide.operations.messages.consumption
import bolide.operations.messages.detail
import bolide.operations.messages.downloads
import bolide.operations.messages.lookup
import bolide.operations.messages.places
import bolide.operations.messages.resending
import bolide.operations.messages.search
import bolide.operations.messages.tail
import bolide.operations.producers
import bolide.operations.sending
import bolide.operations.traces
from bolide.operations.declaration import OPERATIONS

__all__ = ["OPERATIONS"]
