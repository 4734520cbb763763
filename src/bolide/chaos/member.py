"""`python -m bolide.chaos.member …` is `bolide …` with the faults of BOLIDE_CHAOS_FAULTS.

Clock and disk are replaced before the servers are imported: these take `time.time` and `Disk` when
they are defined.
"""

import os
import runpy
import time
from pathlib import Path

from bolide.chaos.faults import FAULTS_VARIABLE, FaultFile, faulty_disk, shifted
from bolide.store import disk


def main() -> None:
    path = os.environ.get(FAULTS_VARIABLE)
    if path:
        file = FaultFile(Path(path))
        file.watch()
        now = shifted(time.time, file)
        time.time = now
        time.time_ns = lambda: int(now() * 1e9)
        disk.Disk = faulty_disk(file)  # type: ignore[misc]  # the point of this module
    runpy.run_module("bolide", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
