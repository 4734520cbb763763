"""Become the given command, and die with the process that started it.

Usage: tied.py PARENT_PID COMMAND ARGUMENT...
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent may have died before the call above took effect.
    if os.getppid() != parent:
        sys.exit(f"{command[0]}: the process that wanted it is gone")
    os.execv(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
