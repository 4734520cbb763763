import pickle
import re
from pathlib import Path

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from bolide.arrow.errors import BadPosition
from bolide.arrow.offsets import At, Earliest, Exact, Group, Latest
from bolide.errors import ConfigError
from bolide.model.message_queue import MessageQueue
from bolide.remoting.tls import ClientTls
from bolide.spark.options import ConnectionOptions, SourceOptions

NEEDED = {"nameServer": "127.0.0.1:9876", "topic": "orders"}


def options(**given: object) -> SourceOptions:
    return SourceOptions.of({key: str(value) for key, value in {**NEEDED, **given}.items()})


def test_names_may_be_in_any_case_as_spark_hands_them_over() -> None:
    spelled = CaseInsensitiveDict({**NEEDED, "MaxOffsetsPerTRIGGER": "7"})

    assert SourceOptions.of(spelled) == options(maxOffsetsPerTrigger=7)


def test_several_topics_have_commas_between_them() -> None:
    assert options(topic="a, b,c").topic == ("a", "b", "c")


def test_an_unknown_option_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"unknown option startingoffset; .*startingOffsets\?"):
        options(startingoffset="earliest")


def test_an_option_like_no_other_is_refused_with_all_names() -> None:
    with pytest.raises(ConfigError, match=r"unknown option x; there are nameServer, .*pullTime"):
        options(x="1")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"topicPattern": "a.*"}, "topic and topicPattern"),
        ({"topic": ""}, "topic or topicPattern is missing"),
        ({"topic": "", "topicPattern": "("}, "topicPattern='(': is no regular expression: missing"),
        ({"tags": "a", "sql": "b > 1"}, "tags and sql"),
        ({"startingOffsets": "earliest", "startingTimestamp": 0}, "startingOffsets and starting"),
        ({"endingOffsets": "latest", "endingTimestamp": 5}, "endingOffsets and endingTimestamp"),
        ({"tlsCertPath": "/c.pem"}, "tlsCertPath has no effect without tlsEnable=true"),
        ({"tlsVerify": "false"}, "tlsVerify has no effect without tlsEnable=true"),
        (
            {"tlsEnable": "true", "tlsVerify": "false", "tlsTrustCertPath": "/ca.pem"},
            "has no effect with tlsVerify=false",
        ),
        ({"accessKey": "k"}, "accessKey and secretKey"),
        ({"maxOffsetsPerTrigger": 0}, "maxOffsetsPerTrigger=0"),
        ({"minPartitions": "many"}, "minPartitions='many'"),
        ({"failOnDataLoss": "perhaps"}, "failOnDataLoss='perhaps'"),
        ({"nameServer": "nowhere"}, "nowhere"),
    ],
)
def test_what_cannot_be_used_is_named(given: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(text)):
        options(**given)


def test_the_name_server_of_the_environment_is_kept_for_workers_that_have_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "10.0.0.1:9876;10.0.0.2:9876")
    found = SourceOptions.of({"topic": "orders"})
    monkeypatch.delenv("NAMESRV_ADDR")

    assert found.connection().name_server == "10.0.0.1:9876;10.0.0.2:9876"
    with pytest.raises(ConfigError, match="nameServer is missing"):
        SourceOptions.of({"topic": "orders"})


def test_credentials_and_tls_reach_the_connection() -> None:
    found = options(
        accessKey="key", secretKey="secret", securityToken="token", namespace="team",
        tlsEnable="true", tlsTrustCertPath="/ca.pem", callTimeoutMs=1500,
    ).connection()  # fmt: skip

    assert (found.access_key, found.secret_key, found.security_token) == ("key", "secret", "token")
    assert (found.namespace, found.call_timeout) == ("team", 1.5)
    assert found.tls == ClientTls(trust=Path("/ca.pem"))
    lenient = options(tlsEnable="true", tlsCheckHost="false", tlsServerName="mq").connection()
    assert lenient.tls == ClientTls(check_host=False, server_name="mq")


def test_secrets_are_in_no_text() -> None:
    found = options(accessKey="ak-1", secretKey="sk-2", securityToken="st-3")

    for value in (found, found.connection(), found.reading()):
        assert not re.search("ak-1|sk-2|st-3", repr(value))
    assert "topic='orders'" in repr(found)


def test_options_travel_to_workers() -> None:
    found = options(sql="a > 1", valueSchema="id bigint", patienceMs=2500)

    assert pickle.loads(pickle.dumps(found)) == found
    assert found.reading().sql == "a > 1"
    assert found.reading().patience == 2.5


def test_the_expression_of_older_connectors_is_one_of_tags() -> None:
    assert options(subExpression="a || b").reading().tags == "a || b"
    assert options().reading().tags == "*"


def test_positions_in_all_their_forms() -> None:
    assert options().start(default="latest") == Latest()
    assert options(startingOffsets="Earliest").start(default="latest") == Earliest()
    assert options(startingTimestamp=17).start(default="latest") == At(17)
    assert options(startingOffsets="1970-01-01T00:00:01").start(default="latest") == At(1000)
    assert options(startingOffsets="group:g").start(default="latest") == Group("g")
    given = options(startingOffsets='{"orders":{"broker-a":{"0":-2,"1":5}}}').start(default="x")
    queues = [MessageQueue("orders", "broker-a", number) for number in (0, 1)]
    assert given == Exact({queues[0]: -2, queues[1]: 5})
    assert options().end() == Latest()
    assert options(endingTimestamp=18).end() == At(18)


def test_a_bad_position_names_its_option() -> None:
    with pytest.raises(BadPosition, match="endingOffsets='soon'"):
        options(endingOffsets="soon").end()


def test_the_sink_needs_no_topic_to_reach_a_cluster() -> None:
    found = ConnectionOptions.of({"nameserver": "127.0.0.1:9876"})

    assert found.connection().name_server == "127.0.0.1:9876"
