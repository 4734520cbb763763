"""The Spark source and sink with credentials, at a broker with ACL 1.0."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from bolide import Message
from bolide.sync import Producer
from tests.interop.ours import bolide_broker, bolide_namesrv

ACL = """
accounts:
- {accessKey: administrator, secretKey: secret-of-admin, admin: true}
- accessKey: orders-app
  secretKey: secret-of-orders
  topicPerms: [orders=PUB|SUB]
  groupPerms: [TOOLS_CONSUMER=SUB]
"""
ADMIN: Any = {"access_key": "administrator", "secret_key": "secret-of-admin"}
APP = {"accessKey": "orders-app", "secretKey": "secret-of-orders"}


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[str]:
    """The NameServer of a cluster with two topics."""
    file = tmp_path / "broker" / "conf" / "plain_acl.yml"
    file.parent.mkdir(parents=True)
    file.write_text(ACL)
    with (
        bolide_namesrv(tmp_path / "namesrv") as namesrv,
        bolide_broker(tmp_path / "broker", namesrv.address, aclEnable=True),
    ):
        with Producer("setup", name_server=namesrv.address, **ADMIN) as producer:
            for topic in ("orders", "secrets"):
                producer.send(Message(topic, b"one"))
        yield namesrv.address


def test_spark_reads_and_writes_what_its_account_may(spark: SparkSession, guarded: str) -> None:
    def load(topic: str, **keys: str) -> list[bytes]:
        reader = spark.read.format("rocketmq").options(nameServer=guarded, topic=topic, **keys)
        return sorted(bytes(row.body) for row in reader.load().select("body").collect())

    rows = spark.createDataFrame([("two",)], ["body"])
    rows.write.format("rocketmq").mode("append").options(
        nameServer=guarded, topic="orders", **APP
    ).save()
    assert load("orders", **APP) == [b"one", b"two"]
    reason = "No default permission for topic:secrets: accessKey=orders-app"
    with pytest.raises(PySparkException, match=reason) as refused:
        load("secrets", **APP)
    assert "secret-of" not in str(refused.value)
