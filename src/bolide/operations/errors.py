"""Errors that operations raise themselves, in addition to those of `AdminClient`."""

from bolide.errors import BolideError


class OperationError(BolideError):
    """Base class; the text says what to do."""


class BadInput(OperationError):
    """A parameter has a value that cannot be used; `field` names it."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class NotFound(OperationError):
    """The cluster has no such object."""


class Unknown(NotFound):
    """It cannot be told whether the cluster has it: servers that may know are away."""


class Conflict(OperationError):
    """The object exists already, or was changed by somebody else meanwhile."""


class NotSupported(OperationError):
    """The servers of this cluster do not offer it."""


class RoleTooLow(OperationError):
    """The caller may not run the operation."""

    def __init__(self, operation: str, needed: str, given: str) -> None:
        super().__init__(f"{operation} needs the role {needed}; you are {given}")


class ConfirmationNeeded(OperationError):
    """The operation destroys or moves something, and the caller has not confirmed just that.

    Run it again with `confirmation=token`; the token is another one if the effect has changed.
    """

    def __init__(self, operation: str, effect: object, token: str) -> None:
        super().__init__(
            f"{operation} needs a confirmation: look at the effect, and repeat the call with"
            f" confirmation={token}"
        )
        self.effect = effect
        self.token = token
