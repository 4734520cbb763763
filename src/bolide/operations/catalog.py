"""All operations; importing this module declares them."""

# ruff: noqa: F401  one line for each module, which declares its operations

import bolide.operations.pipelines
import bolide.operations.sending
from bolide.operations.declaration import OPERATIONS

__all__ = ["OPERATIONS"]
