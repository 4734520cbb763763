"""All operations; importing this module declares them."""

from bolide.operations.declaration import OPERATIONS

__all__ = ["OPERATIONS"]
