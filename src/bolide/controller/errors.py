"""Why a controller cannot start or go on."""

from pathlib import Path

from bolide.errors import BolideError


class ControllerStoreUnusable(BolideError):
    """Files of a controller cannot be used; the message says which, and what to do."""


class ControllerStoreUnreadable(ControllerStoreUnusable):
    """The disk or the rights refuse to read or to create the files."""

    def __init__(self, path: Path, exc: OSError) -> None:
        super().__init__(
            f"the files of the controller in {path.parent} cannot be used: {exc}. Check"
            " controllerStorePath, its rights and its disk"
        )


class ControllerStoreDamaged(ControllerStoreUnusable):
    """What the files hold cannot be right."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"{path}: {reason}. This controller has lost entries that it acknowledged and must not"
            " vote under its old name: remove its directory and give it another id in"
            " controllerDLegerPeers of all controllers"
        )


class ControllerStoreInUse(BolideError):
    """Another process has the files."""


class NewerRelease(BolideError):
    """A controller of a newer release wrote what this one would understand differently."""

    def __init__(self, version: int) -> None:
        super().__init__(
            f"a controller of a newer release wrote version {version} of the log, which this"
            " release cannot apply: bring this controller to that release, too"
        )
