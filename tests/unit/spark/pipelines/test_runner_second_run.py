"""Whether a run may start where no NameServer answers."""

import pytest

from bolide.arrow.cluster import Connection
from bolide.client.errors import NameServersUnreachable
from bolide.spark.pipelines.runner import refuse_second_run

NOWHERE = Connection(name_server="127.0.0.1:1")


def test_a_pipeline_that_reads_from_a_cluster_does_not_start_without_it() -> None:
    with pytest.raises(NameServersUnreachable, match=r"no NameServer answers, tried 127\."):
        refuse_second_run(NOWHERE, "orders", needed=True)


def test_work_that_only_reports_to_it_does(caplog: pytest.LogCaptureFixture) -> None:
    refuse_second_run(NOWHERE, "compact")

    assert "cannot check whether compact is already running: no NameServer answers" in caplog.text
