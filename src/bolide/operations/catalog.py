"""All operations; importing this module declares them."""

# ruff: noqa: F401  one line for each module, which declares its operations

import bolide.operations.access_brokers
import bolide.operations.access_check
import bolide.operations.access_control
import bolide.operations.audit
import bolide.operations.pipelines
import bolide.operations.plain_accounts
import bolide.operations.sending
from bolide.operations.declaration import OPERATIONS

__all__ = ["OPERATIONS"]
