"""The Spark source and sink in a cluster that serves TLS only, to clients with a certificate."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.interop.ours import bolide_broker, bolide_namesrv
from tests.support.certificates import Authority
from tests.support.secured import Secured


def test_tables_are_written_and_read_with_tls(spark: SparkSession, tmp_path: Path) -> None:
    secured = Secured.by(Authority(tmp_path / "authority"))
    properties = secured.properties
    with (
        bolide_namesrv(tmp_path / "namesrv", **properties) as names,
        bolide_broker(tmp_path / "broker", names.address, **properties),
    ):
        tls = {
            "tlsEnable": "true",
            "tlsTrustCertPath": str(secured.trust),
            "tlsCertPath": str(secured.client.certificate),
            "tlsKeyPath": str(secured.client.key),
        }
        options = {"nameServer": names.address, "topic": "spark-tls", "patienceMs": "20000"}
        rows = spark.createDataFrame([(bytes([number]),) for number in range(5)], "body binary")
        rows.write.format("rocketmq").mode("append").options(**options, **tls).save()
        read = spark.read.format("rocketmq").options(**options, **tls).load()
        assert sorted(row.body for row in read.collect()) == [bytes([n]) for n in range(5)]

        with pytest.raises(PySparkException, match=r"tlsTrustCertPath=path/to/ca\.pem"):
            spark.read.format("rocketmq").options(**options, tlsEnable="true").load().collect()
