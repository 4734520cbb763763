import io
import json
import threading

import pytest

from bolide.protocol.bodies.pipelines import Progress
from bolide.spark.pipelines.definition import Table
from bolide.spark.pipelines.monitoring.display import (
    Bar,
    Lines,
    LiveTable,
    Meter,
    RunScreen,
    choose_display,
    progress_text,
    show_json,
    show_text,
)

RESULT = Table("Result", ("queue", "rows", "same"), [("a 0", 1200, True), ("b 10", None, False)])


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_or_a_table_and_a_file_gets_lines() -> None:
    assert isinstance(choose_display("x", once=True, stream=Terminal()), Bar)
    assert isinstance(choose_display("x", once=False, stream=Terminal()), LiveTable)
    assert isinstance(choose_display("x", once=True, stream=io.StringIO()), Lines)


def test_the_bar_shows_rows_of_the_total() -> None:
    stream = Terminal()

    with choose_display("orders", once=True, stream=stream) as display:
        display.update(Progress(rows=250, total=1000, rows_per_second=125.0))
        display.line("half way [sic]")

    assert "orders" in stream.getvalue()
    assert "250/1000" in stream.getvalue()
    assert "125 rows/s" in stream.getvalue()
    assert "half way [sic]" in stream.getvalue()


def test_the_table_shows_how_far_behind_each_topic_is() -> None:
    stream = Terminal()

    with choose_display("orders", once=False, stream=stream) as display:
        display.update(Progress(rows=5000, batch=3, behind={"a": 10, "b": 1234}))

    last = stream.getvalue().rpartition("batch 3")[2]
    assert "1,234" in last
    assert "1,244" in last
    assert "5,000" in last


def test_lines_come_now_and_then_and_at_the_end() -> None:
    stream = io.StringIO()

    with Lines(stream, interval=1000.0) as display:
        for rows in range(5):
            display.update(Progress(rows=rows, total=4))

    assert stream.getvalue().splitlines() == [
        "0 of 4 rows, 0 rows/s",
        "4 of 4 rows, 0 rows/s",
    ]


def test_a_line_of_progress_says_what_is_known() -> None:
    assert progress_text(Progress(rows=1200)) == "1,200 rows, 0 rows/s"
    assert (
        progress_text(Progress(rows=1, rows_per_second=2.4, batch=7, behind={"a": 1, "b": 2}))
        == "1 rows, 2 rows/s, batch 7, 3 behind"
    )


def test_the_rate_is_that_of_the_last_half_minute() -> None:
    meter = Meter()

    assert meter.rate(0, 0.0) == 0.0
    assert meter.rate(100, 10.0) == 10.0
    assert meter.rate(100, 50.0) == 0.0


def test_work_that_advances_is_shown_and_told() -> None:
    told: list[Progress] = []
    stream, stop = io.StringIO(), threading.Event()
    screen = RunScreen(Lines(stream), show=show_text, stop=stop, on_progress=told.append)

    screen.advance(3, 10)
    screen.say("hello")
    stop.set()

    assert (told[0].rows, told[0].total) == (3, 10)
    assert stream.getvalue().splitlines() == ["3 of 10 rows, 0 rows/s", "hello"]
    assert screen.stop_requested


def test_results_are_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    show_text(RESULT)

    assert capsys.readouterr().out.splitlines() == [
        "",
        "Result",
        "queue   rows  same",
        "a 0    1,200  yes",
        "b 10       -  no",
    ]


def test_results_are_lines_of_json_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    show_json(RESULT)

    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"queue": "a 0", "rows": 1200, "same": True},
        {"queue": "b 10", "rows": None, "same": False},
    ]
