"""All cells of the matrix, by name and in the order of the table."""

from tests.interop.matrix import (
    consuming,
    exchanging,
    positions,
    pushing,
    reading,
    sending,
    timing,
)
from tests.interop.matrix.cell import ADDED, KNOWN, Cell, Seen

__all__ = ["CELLS", "KNOWN", "Cell", "Seen"]

CELLS = {
    cell.name: cell
    for module in (sending, exchanging, pushing, timing, consuming, reading, positions)
    for cell in ADDED
    if cell.check.__module__ == module.__name__
}
