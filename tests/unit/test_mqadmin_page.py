"""The page about Java's mqadmin says what the cases say."""

from tests.interop.mqadmin_page import PAGE, rows


def test_the_page_has_a_row_for_each_command_as_the_cases_say() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    table = [line for line in lines if line.startswith("| `")]

    assert table == rows(), "run `python -m tests.interop.mqadmin_page --write`"
    assert len(table) > 90
