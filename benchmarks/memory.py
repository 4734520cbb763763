"""What it takes to have memory for a new file, as each broker needs it for its log."""

import mmap
import os
import tempfile
import time

_SIZE = 256 * 2**20


def new_page_us(size: int = _SIZE) -> float:
    """CPU time for the first write to a page of a new file in the brokers' directory."""
    pages = size // mmap.PAGESIZE
    with tempfile.TemporaryFile() as file:
        os.posix_fallocate(file.fileno(), 0, size)
        with mmap.mmap(file.fileno(), size) as view:
            begin = time.process_time()
            for at in range(0, size, mmap.PAGESIZE):
                view[at] = 1
            return (time.process_time() - begin) / pages * 1e6
