"""What brokers say when they register."""

from bolide.protocol import fastjson
from bolide.protocol.bodies.data_version import DataVersion
from bolide.protocol.bodies.registration import RegisterBrokerBody
from bolide.protocol.bodies.topics import MappedTopicConfigTable, TopicConfig
from bolide.protocol.headers.namesrv import RegisterBrokerHeader, UnregisterBrokerHeader

CLUSTER = "cluster-1"


def broker_header(
    address: str = "10.0.0.1:10911",
    *,
    name: str = "broker-a",
    broker_id: int = 0,
    cluster: str = CLUSTER,
    acting: bool | None = False,
    timeout_ms: int | None = None,
    zone: str | None = None,
    compressed: bool = False,
    crc: int = 0,
) -> RegisterBrokerHeader:
    return RegisterBrokerHeader(
        broker_name=name,
        broker_addr=address,
        cluster_name=cluster,
        ha_server_addr=address.replace("10911", "10912"),
        broker_id=broker_id,
        enable_acting_master=acting,
        heartbeat_timeout_millis=timeout_ms,
        zone_name=zone,
        compressed=compressed,
        body_crc32=crc,
    )


def leaving_header(header: RegisterBrokerHeader) -> UnregisterBrokerHeader:
    return UnregisterBrokerHeader(
        header.broker_name, header.broker_addr, header.cluster_name, header.broker_id
    )


def topics_body(
    *topics: str | TopicConfig,
    version: DataVersion | None = None,
    filter_servers: list[str] | None = None,
) -> RegisterBrokerBody:
    """A registration with these topics; a second one is added, since one alone is refused."""
    configs = [TopicConfig(topic_name=t) if isinstance(t, str) else t for t in topics]
    configs.append(TopicConfig(topic_name="TBW102"))
    return RegisterBrokerBody(
        topic_config_serialize_wrapper=MappedTopicConfigTable(
            data_version=version or DataVersion(counter=1, timestamp=1),
            topic_config_table={config.topic_name: config for config in configs},
        ),
        filter_server_list=filter_servers,
    )


def plain(body: RegisterBrokerBody) -> bytes:
    return fastjson.encode(body)
