"""`bolide export` and `bolide apply` at Apache's brokers."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from bolide.cli import app
from tests.interop.bench import Bench
from tests.interop.conftest import NEWEST
from tests.interop.matrix.brokers import cluster

OLD = "4.9"
DOCUMENT = """\
version: 1
topics:
  Orders: {writeQueueNums: 4, perm: 6, order: true}
groups:
  billing: {retryMaxTimes: 5}
"""


def run(name_server: str, *words: str, code: int = 0, **env: str) -> str:
    done = CliRunner().invoke(app, [*words, "-n", name_server], env=env)
    assert done.exit_code == code, (words, done.output, done.exception)
    return done.output


@pytest.mark.parametrize("version", [NEWEST, pytest.param(OLD, marks=pytest.mark.long)])
def test_an_apache_cluster_becomes_what_a_file_says(
    java_bench: Bench, tmp_path: Path, version: str
) -> None:
    file = tmp_path / "cluster.yml"
    has_attributes = version != OLD
    text = DOCUMENT
    if has_attributes:
        text = text.replace("order: true", "order: true, attributes: {message.type: FIFO}")
    file.write_text(text)

    def apply(*words: str, code: int = 0) -> str:
        return run(found.namesrv_address, "apply", str(file), *words, code=code)

    with cluster(version, tmp_path, java_bench) as found:
        assert "2 to create" in apply("--yes")
        assert "nothing to do" in apply("--check")
        exported: dict[str, Any] = yaml.safe_load(run(found.namesrv_address, "export"))
        assert [*exported["topics"]] == ["Orders"]
        assert [*exported["groups"]] == ["billing"]
        assert "users" not in exported
        assert "accounts" not in exported
        assert ("attributes" in exported["topics"]["Orders"]) == has_attributes
        file.write_text(yaml.safe_dump(exported))
        assert "nothing to do" in apply("--prune")

        changed = {"version": 1, "topics": {"Orders": {"perm": 4, "order": False}, "Bills": None}}
        file.write_text(yaml.safe_dump(changed))
        printed = apply("--yes", "--prune")
        assert "perm: 6 -> 4" in printed
        assert "order: true -> false" in printed
        if has_attributes:
            changed["topics"] = {"Orders": {"attributes": {"message.type": "DELAY"}}}
            file.write_text(yaml.safe_dump(changed))
            assert "attributes[message.type]: FIFO -> DELAY" in apply("--yes", "--prune")
            assert [*yaml.safe_load(run(found.namesrv_address, "export"))["topics"]] == ["Orders"]
        else:
            changed["topics"] = {"Orders": {"attributes": {"message.type": "FIFO"}}}
            file.write_text(yaml.safe_dump(changed))
            assert "compatible with RocketMQ 4, which has none" in apply("--yes", code=1)
        file.write_text("{version: 1, users: {}}")
        assert "has no users" in apply("--yes", code=1)
