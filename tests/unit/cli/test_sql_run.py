"""What `bolide sql` keeps from the eyes of its users."""

import logging
import signal

import pytest

from bolide.cli.sql_run import silence_py4j


def test_ctrl_c_is_raised_at_once_and_py4j_tells_no_traces(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = signal.signal(signal.SIGINT, lambda *_: pytest.fail("pyspark's handler was asked"))
    try:
        with pytest.raises(KeyboardInterrupt), silence_py4j():
            try:
                signal.raise_signal(signal.SIGINT)
            finally:
                logging.getLogger().error("KeyboardInterrupt while sending command.")
                logging.getLogger("py4j").error("a trace")
                logging.getLogger("bolide.spark.view").warning("a gap")
    finally:
        signal.signal(signal.SIGINT, before)
    assert caplog.messages == ["a gap"]
