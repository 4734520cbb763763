"""When records of the journal were written, about."""

from collections import deque

_STEP = 600.0


class Ages:
    """Keeps the number of one record in ten minutes. Times are in seconds since 1970."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int]] = deque()

    def note(self, number: int, at: float) -> None:
        """Record `number` is written now, behind all that were noted."""
        if self._marks and at < self._marks[-1][0]:  # the clock was set back
            self._marks.clear()
        if not self._marks or at - self._marks[-1][0] >= _STEP:
            self._marks.append((at, number))

    def written_before(self, moment: float) -> int:
        """All records below this number were; do not ask of earlier moments later on."""
        marks = self._marks
        while len(marks) > 1 and marks[1][0] <= moment:
            marks.popleft()
        return marks[0][1] + 1 if marks and marks[0][0] <= moment else 0
