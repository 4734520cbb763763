"""All operations; importing this module declares them."""

# ruff: noqa: F401  one line for each module, which declares its operations

import bolide.operations.consumer_deletion
import bolide.operations.consumer_members
import bolide.operations.consumer_settings
import bolide.operations.consumers
import bolide.operations.dashboard
import bolide.operations.offsets
import bolide.operations.producers
import bolide.operations.sending
import bolide.operations.topic_changes
import bolide.operations.topic_detail
import bolide.operations.topic_updates
import bolide.operations.topics
from bolide.operations.declaration import OPERATIONS

__all__ = ["OPERATIONS"]
