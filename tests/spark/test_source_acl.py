"""The Spark source and sink with credentials, at brokers with ACL 1.0 and with ACL 2.0."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from bolide import Message
from bolide.protocol.refusals import NoPermission
from bolide.sync import Producer
from tests.interop.ours import bolide_broker, bolide_namesrv

ADMIN: Any = {"access_key": "administrator", "secret_key": "secret-of-admin"}
APP = {"accessKey": "orders-app", "secretKey": "secret-of-orders"}
READ_AS = "TOOLS_CONSUMER"


def plain_acl(topics: dict[str, str]) -> str:
    """A file of ACL 1.0."""
    permissions = ", ".join(f"{topic}={permission}" for topic, permission in topics.items())
    return f"""
accounts:
- {{accessKey: administrator, secretKey: secret-of-admin, admin: true}}
- accessKey: orders-app
  secretKey: secret-of-orders
  topicPerms: [{permissions}]
  groupPerms: [{READ_AS}=SUB]
"""


def policies(topics: dict[str, str]) -> str:
    """A file of policies of ACL 2.0."""
    resources = {f"Topic:{topic}": permission for topic, permission in topics.items()}
    entries = [
        {"resource": each, "actions": [*actions.title().split("|"), "Get"], "decision": "Allow"}
        for each, actions in (resources | {f"Group:{READ_AS}": "SUB"}).items()
    ]
    policy = {"policyType": "Custom", "entries": entries}
    return json.dumps({"acls": [{"subject": "User:orders-app", "policies": [policy]}]})


USERS = {
    "users": [
        {"username": "administrator", "password": "secret-of-admin", "userType": "Super"},
        {"username": "orders-app", "password": "secret-of-orders", "userType": "Normal"},
    ]
}
BEFORE, AFTER = {"orders": "PUB|SUB"}, {"secrets": "SUB"}


class Guarded(NamedTuple):
    """A cluster with two topics."""

    name_server: str
    allow: Callable[[dict[str, str]], None]
    """Change what the application may do."""
    denial: str
    """The text of one about a topic."""


@pytest.fixture(params=["ACL 1.0", "ACL 2.0"])
def guarded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Guarded]:
    if request.param == "ACL 1.0":
        file, written = tmp_path / "broker" / "conf" / "plain_acl.yml", plain_acl
        settings: dict[str, Any] = {"aclEnable": True}
        denial = "No default permission for topic:{topic}: accessKey=orders-app needs SUB"
    else:
        file, written = tmp_path / "auth" / "acls.json", policies
        settings = {
            "authenticationEnabled": True, "authorizationEnabled": True,
            "authConfigPath": file.parent,
        }  # fmt: skip
        denial = "User:orders-app has no permission to access Topic:{topic} from 127.0.0.1"
    file.parent.mkdir(parents=True)
    file.write_text(written(BEFORE))
    if request.param == "ACL 2.0":
        (file.parent / "users.json").write_text(json.dumps(USERS))
    with (
        bolide_namesrv(tmp_path / "namesrv") as namesrv,  # brokers decide: it lets all look
        bolide_broker(tmp_path / "broker", namesrv.address, **settings),
    ):
        with Producer("setup", name_server=namesrv.address, **ADMIN) as producer:
            for topic in ("orders", "secrets"):
                producer.send(Message(topic, b"one"))
        yield Guarded(namesrv.address, lambda topics: _replace(file, written(topics)), denial)


def _replace(file: Path, text: str) -> None:
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


def test_spark_reads_and_writes_what_its_account_may(spark: SparkSession, guarded: Guarded) -> None:
    def load(topic: str) -> list[bytes]:
        options = {"nameServer": guarded.name_server, "topic": topic, **APP}
        rows = spark.read.format("rocketmq").options(**options).load().select("body")
        return sorted(bytes(row.body) for row in rows.collect())

    def refusal(topic: str) -> str | None:
        try:
            load(topic)
        except PySparkException as refused:
            return str(refused)
        return None

    rows = spark.createDataFrame([("two",)], ["body"])
    rows.write.format("rocketmq").mode("append").options(
        nameServer=guarded.name_server, topic="orders", **APP
    ).save()
    assert load("orders") == [b"one", b"two"]
    check(refusal("secrets"), guarded.denial.format(topic="secrets"))

    guarded.allow(AFTER)
    until(lambda: refusal("secrets") is None)
    assert load("secrets") == [b"one"]
    check(refusal("orders"), guarded.denial.format(topic="orders"))


def check(refused: str | None, reason: str) -> None:
    assert refused is not None
    assert int(NoPermission.code) == 16
    assert f"{NoPermission.__name__}: {reason}" in refused  # Spark has the text alone
    assert "secret-of" not in refused


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)
