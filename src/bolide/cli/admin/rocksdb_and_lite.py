"""Commands about RocksDB and light topics, which Bolide does not have.

They take all options of RocketMQ 5.5, and say why they do nothing.
"""

from typing import Annotated

import typer

from bolide.cli.admin.session import AsDocument, NameServer, not_applicable

_FILES = "Bolide keeps consume queues, topics, groups and offsets in files, not in RocksDB"
_LITE = "Bolide has no light topics"
_TOOL = "for brokers of RocketMQ use its own mqadmin"

Text = str | None
NameServers = Annotated[
    Text, typer.Option("-n", "--namesrvAddr", "--nameserverAddr", help="NameServers.")
]
Parent = Annotated[Text, typer.Option("-p", "--parentTopic", help="Name of the parent topic.")]
LiteTopic = Annotated[Text, typer.Option("-l", "--liteTopic", help="Name of the light topic.")]
LiteGroup = Annotated[Text, typer.Option("-g", "--group", help="Name of the consumer group.")]
Client = Annotated[Text, typer.Option("-c", "--clientId", help="Id of the client.")]
Broker = Annotated[Text, typer.Option("-b", "--brokerAddr", help="Address of one broker.")]
Cluster = Annotated[Text, typer.Option("-c", "--cluster", help="All brokers of this cluster.")]
Detail = Annotated[bool, typer.Option("-d", "--showDetail", help="Show details.")]
ConfigType = Annotated[
    Text, typer.Option("-t", "--configType", help="topics, subscriptionGroups or consumerOffsets.")
]
InJson = Annotated[Text, typer.Option("-j", "--jsonEnable", help="true: as JSON.")]


def check_rocksdb_cq_write_progress(
    cluster: Cluster = None,
    check_from: Annotated[
        Text, typer.Option("-cf", "--checkFrom", help="First store time, in ms.")
    ] = None,
    topic: Annotated[Text, typer.Option("-t", "--topic", help="Name of the topic.")] = None,
    as_document: AsDocument = False,
    name_server: NameServers = None,
) -> None:
    """Compare consume queues in RocksDB with those in files; not applicable."""
    not_applicable(f"{_FILES}; {_TOOL}")


def rocksdb_config_to_json(
    broker: Broker = None,
    cluster: Cluster = None,
    export_file: Annotated[Text, typer.Option("-e", "--exportFile", help="File to write.")] = None,
    in_json: InJson = None,
    config_path: Annotated[
        Text, typer.Option("-p", "--configPath", help="Directory of the metadata.")
    ] = None,
    config_type: ConfigType = None,
    as_document: AsDocument = False,
    name_server: NameServers = None,
) -> None:
    """Export metadata that is kept in RocksDB; not applicable, see exportMetadata."""
    not_applicable(f"{_FILES}: see exportMetadata; {_TOOL}")


def export_metadata_in_rocksdb(
    path: Annotated[Text, typer.Option("-p", "--path", help="Directory of the metadata.")] = None,
    config_type: ConfigType = None,
    in_json: InJson = None,
    as_document: AsDocument = False,
    name_server: NameServers = None,
) -> None:
    """Print metadata that is kept in RocksDB; not applicable, see exportMetadata."""
    not_applicable(f"{_FILES}: see exportMetadata; {_TOOL}")


def get_broker_lite_info(
    broker: Broker = None,
    cluster: Cluster = None,
    detail: Detail = False,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Show the light topics of brokers; not applicable."""
    not_applicable(f"{_LITE}; {_TOOL}")


def get_parent_topic_info(
    parent: Parent = None, as_document: AsDocument = False, name_server: NameServer = None
) -> None:
    """Show the parent topic of light topics; not applicable."""
    not_applicable(f"{_LITE}; {_TOOL}")


def get_lite_topic_info(
    lite_topic: LiteTopic = None,
    parent: Parent = None,
    clients: Annotated[
        bool, typer.Option("-s", "--showClientId", help="Show the ids of clients.")
    ] = False,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Show a light topic; not applicable."""
    not_applicable(f"{_LITE}; {_TOOL}")


def get_lite_client_info(
    client: Client = None,
    group: LiteGroup = None,
    parent: Parent = None,
    detail: Annotated[bool, typer.Option("-s", "--showDetail", help="Show details.")] = False,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Show the light topics of a client; not applicable."""
    not_applicable(f"{_LITE}; {_TOOL}")


def get_lite_group_info(
    group: LiteGroup = None,
    top: Annotated[Text, typer.Option("-k", "--topK", help="The first so many.")] = None,
    lite_topic: LiteTopic = None,
    parent: Parent = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Show the light topics of a group; not applicable."""
    not_applicable(f"{_LITE}; {_TOOL}")


def trigger_lite_dispatch(
    broker_name: Annotated[
        Text, typer.Option("-b", "--brokerName", help="Name of one broker.")
    ] = None,
    client: Client = None,
    group: LiteGroup = None,
    parent: Parent = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Have light topics delivered; not applicable."""
    not_applicable(f"{_LITE}; {_TOOL}")
