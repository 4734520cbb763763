"""`Files` that fail permanently after a number of steps, like those of a killed process."""

from collections.abc import Callable
from typing import Any

from bolide.spark.archive.files import LocalFiles

_CHANGES = {"write_new", "overwrite", "move", "delete"}


class Killed(BaseException):
    """Simulated death of the process."""


class MortalFiles:
    """Fails before change number `life`, or halfway through a change that is not atomic."""

    def __init__(self, files: LocalFiles, life: int) -> None:
        self._files = files
        self.left = life

    @property
    def is_dead(self) -> bool:
        return self.left < 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._files, name)
        return self._counted(found) if name in _CHANGES else found

    def _counted(self, change: Callable[..., object]) -> Callable[..., object]:
        def counted(*arguments: object) -> object:
            self.left -= 1
            if self.is_dead:
                raise Killed
            return change(*arguments)

        return counted
