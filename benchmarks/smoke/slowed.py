"""Runs a program of ours that uses more CPU time than it should: does the guard find it?

    python -m benchmarks.smoke.slowed PERCENT MODULE ARGUMENT…

Whatever came in is handled, and then as many percent of all CPU time so far are burnt.
"""

import runpy
import sys
import time

from bolide.remoting.connection import Connection


def slow_down(percent: float) -> None:
    burnt, receive = 0.0, Connection.data_received

    def receive_and_burn(self: Connection, data: bytes) -> None:
        nonlocal burnt
        receive(self, data)
        begun = now = time.process_time()
        owed = (begun - burnt) * percent / 100 - burnt
        while now - begun < owed:
            now = time.process_time()
        burnt += now - begun

    setattr(Connection, "data_received", receive_and_burn)  # noqa: B010  mypy knows no patches


if __name__ == "__main__":
    slow_down(float(sys.argv[1]))
    module = sys.argv[2]
    sys.argv = sys.argv[2:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
