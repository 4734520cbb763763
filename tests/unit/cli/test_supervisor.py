"""What is said of a server that ended by itself."""

import pytest

from bolide.cli.supervisor import FailedToStart


@pytest.mark.parametrize(
    ("code", "ending"),
    [
        (3, "ended with exit code 3"),
        (-9, "was ended by SIGKILL"),
        (-40, "was ended by signal 40"),
    ],
)
def test_the_end_of_a_server_is_told_whatever_ended_it(code: int, ending: str) -> None:
    assert f"worker-1 {ending} before it served" in str(FailedToStart("worker-1", code))
