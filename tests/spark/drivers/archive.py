"""Archives a topic in small changes until it is through, and merges files all the while.

Run as a program: name server, topic, path.
"""

import sys

from bolide.spark.pipelines import archive, runner
from bolide.spark.pipelines.archive import ArchiveOptions, plan
from bolide.spark.pipelines.builtin import RunSettings
from bolide.spark.session import session

ROWS_A_BATCH = 1000


def main(name_server: str, topic: str, path: str) -> None:
    archive.MIN_FILES_CURRENT_HOUR = 6  # so that some kills hit a merge
    spark = session(
        "archive", master="local[2]",
        conf={"spark.ui.enabled": "false", "spark.driver.memory": "1g"},
    )  # fmt: skip
    options = ArchiveOptions(path=path, topic=topic, batch_rows=ROWS_A_BATCH)
    runner.run(plan(options, RunSettings(name_server=name_server, once=True)), spark, None)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
