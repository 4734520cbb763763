"""All operations; importing this module declares them."""

# ruff: noqa: F401  one line for each module, which declares its operations

import bolide.operations.cluster_members
import bolide.operations.connection
import bolide.operations.drains
import bolide.operations.health
import bolide.operations.replication
import bolide.operations.sending
import bolide.operations.server_settings
from bolide.operations.declaration import OPERATIONS

__all__ = ["OPERATIONS"]
