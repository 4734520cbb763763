"""How the profile reads the reports of `perf`."""

from pathlib import Path

import pytest

from benchmarks import profile

DSO = """
# Overhead  Shared Object
    46.00%  libpython3.11.so.1.0
    37.00%  [kernel.kallsyms]
     7.00%  _sends.cpython-311-x86_64-linux-gnu.so
     5.00%  loop.cpython-311-x86_64-linux-gnu.so
     4.00%  libc.so.6
     1.00%  something else
"""
SYMBOLS = """
    36.50%     0.50%  [k] do_syscall_64            -      -
    23.00%     0.00%  [k] ksys_write               -      -
    23.50%     0.00%  [k] __x64_sys_write          -      -
     4.00%     0.06%  [k] ksys_read                -      -
    46.00%    20.00%  [.] _PyEval_EvalFrameDefault -      -
"""


@pytest.fixture
def shares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    reports = {"dso": DSO, "symbol": SYMBOLS}
    monkeypatch.setattr(profile, "_text", lambda samples, children, key: reports[key])
    return profile._shares(tmp_path)


def test_the_time_of_the_broker_is_split_by_where_it_was_spent(shares: dict[str, float]) -> None:
    assert {part: round(100 * share, 1) for part, share in shares.items()} == {
        "interpreter": 46.0,
        "system: other": 9.5,
        "compiled kernels": 7.0,
        "uvloop": 5.0,
        "C library": 4.0,
        "other": 1.0,
        "system: write": 23.5,
        "system: read": 4.0,
    }


def test_a_row_for_each_part_the_largest_first(shares: dict[str, float]) -> None:
    times = {"whole": 20.0} | {part: 20 * share for part, share in shares.items()}
    rows = profile._table({"send-64": times}).splitlines()
    assert rows[2] == "| broker CPU µs per message | `send-64` |"
    assert rows[4:7] == ["| whole | 20.00 |", "| interpreter | 9.20 |", "| system: write | 4.70 |"]
