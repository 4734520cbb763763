import pytest

from bolide.spark.pipelines.errors import failure_reason

OF_A_WORKER = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted
  File "/x/worker.py", line 1, in main
Traceback (most recent call last):
  File "reading.py", line 3, in read
    raise DataLost(queue)
bolide.arrow.errors.DataLost: topic 'orders': offset 3 was wanted

\tat org.apache.spark.api.python.BasePythonRunner(PythonRunner.scala:10)
Caused by: org.apache.spark.api.python.PythonException: again
"""
OF_A_CALL = """An error occurred while calling o57.start.
: org.apache.spark.SparkClassNotFoundException: [DATA_SOURCE_NOT_FOUND] Failed to find it.
\tat org.apache.spark.sql.Somewhere
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (OF_A_WORKER, "DataLost: topic 'orders': offset 3 was wanted"),
        (OF_A_CALL, "[DATA_SOURCE_NOT_FOUND] Failed to find it."),
        ("[UNRESOLVED_COLUMN] no column\n'Project [x]\n+- y", "[UNRESOLVED_COLUMN] no column"),
        (
            "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Too bad.\n at x",
            "Too bad.",
        ),
        ("", "ValueError"),
    ],
)
def test_the_reason_is_one_line_that_helps(text: str, reason: str) -> None:
    assert failure_reason(ValueError(text)) == reason
