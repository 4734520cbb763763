"""All operations; importing this module declares them."""

# ruff: noqa: F401  one line for each module, which declares its operations

import bolide.operations.dead_letters
import bolide.operations.jobs
import bolide.operations.parked
import bolide.operations.redrives
import bolide.operations.sending
import bolide.operations.timers
import bolide.operations.transactions
from bolide.operations.declaration import OPERATIONS

__all__ = ["OPERATIONS"]
