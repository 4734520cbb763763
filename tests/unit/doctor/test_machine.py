"""What is found on the machine itself; java and Python are scripts that say what a test wants."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bolide.doctor import Severity
from bolide.doctor.machine import MachineFacts, check, look
from tests.support.aio import on_loop

OWN = sys.version_info[:2]
SOUND = MachineFacts(
    is_compiled=True, open_files=1_000_000, maps=1_000_000, has_spark=True, java="/bin/java",
    java_version=17,
)  # fmt: skip


def script(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"is_compiled": False}, "compiled-kernel"),
        ({"is_compiled": False, "is_plain_chosen": True}, "compiled-kernel"),
        ({"open_files": 1024}, "open-files"),
        ({"maps": 1024}, "memory-maps"),
        ({"java": ""}, "java"),
        ({"java_version": None}, "java"),
        ({"java_version": 11}, "java"),
        ({"python": "python9"}, "pyspark-python"),
        ({"python": "python2", "python_version": (2, 7)}, "pyspark-python"),
        ({"python": "p", "python_version": OWN, "has_packages": False}, "pyspark-python"),
    ],
)
def test_a_fault_of_the_machine_is_a_warning_with_a_command(
    change: dict[str, object], name: str
) -> None:
    found = [each for each in check(replace(SOUND, **change)) if each.severity is not Severity.OK]  # type: ignore[arg-type]  # a table of changes
    assert [(each.id, each.severity) for each in found] == [(name, Severity.WARNING)]
    assert found[0].why
    assert found[0].command


def test_a_sound_machine_is_in_order_and_one_without_spark_gets_a_note() -> None:
    assert {each.severity for each in check(SOUND)} == {Severity.OK}
    found = {each.id: each.severity for each in check(replace(SOUND, has_spark=False))}
    assert found["spark"] is Severity.NOTE
    unknown = {each.id: each.severity for each in check(replace(SOUND, maps=None))}
    assert unknown["memory-maps"] is Severity.UNKNOWN


@on_loop
async def test_the_programs_that_spark_would_use_are_asked(tmp_path: Path) -> None:
    old = "echo 'openjdk version \"1.8.0_302\"' >&2"
    script(tmp_path / "bin" / "java", old)
    python = script(tmp_path / "python", "echo 3 9 True")
    facts = await look({"JAVA_HOME": str(tmp_path), "PYSPARK_PYTHON": python})
    assert (facts.java_version, facts.python_version) == (8, (3, 9))

    none = await look({"PATH": str(tmp_path / "nowhere"), "PYSPARK_PYTHON": "/nowhere/python"})
    assert (none.java, none.java_version, none.python_version) == ("", None, None)

    own = await look(os.environ | {"PYSPARK_PYTHON": sys.executable})
    assert own.python_version == OWN
