"""The table of admin commands: RocketMQ's name, function and example of each."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from bolide.cli.admin import (
    audit,
    brokers,
    clusters,
    consumers,
    groups,
    held_messages,
    messages,
    offsets,
    parked,
    plain_acl,
    policies,
    replicas,
    static_topics,
    topics,
    traces,
    users,
)

Verb = Callable[..., None]

_COMMANDS: dict[str, tuple[Verb, str]] = {
    "updateTopic": (topics.update_topic, "-c DefaultCluster -t Orders -r 8 -w 8"),
    "updateTopicPerm": (topics.update_topic_perm, "-c DefaultCluster -t Orders -p 4"),
    "updateStaticTopic": (
        static_topics.update_static_topic,
        "-c DefaultCluster -t Orders -qn 8",
    ),
    "remappingStaticTopic": (
        static_topics.remapping_static_topic,
        "-b broker-a,broker-b -t Orders",
    ),
    "deleteTopic": (topics.delete_topic, "-c DefaultCluster -t Orders"),
    "topicList": (topics.topic_list, "-c"),
    "topicRoute": (topics.topic_route, "-t Orders -l"),
    "topicStatus": (topics.topic_status, "-t Orders"),
    "clusterList": (clusters.cluster_list, "-m"),
    "brokerStatus": (brokers.broker_status, "-b 127.0.0.1:10911"),
    "getBrokerConfig": (brokers.get_broker_config, "-b 127.0.0.1:10911"),
    "updateBrokerConfig": (
        brokers.update_broker_config,
        "-b 127.0.0.1:10911 -k fileReservedTime -v 48",
    ),
    "audit": (audit.audit, "-c DefaultCluster --since 1h"),
    "updateSubGroup": (groups.update_sub_group, "-c DefaultCluster -g billing -r 3"),
    "deleteSubGroup": (groups.delete_sub_group, "-c DefaultCluster -g billing -r true"),
    "setConsumeMode": (
        groups.set_consume_mode,
        "-c DefaultCluster -t Orders -g billing -m POP",
    ),
    "updateFilter": (brokers.update_filter, "-c DefaultCluster -f big-orders -s big_orders.py"),
    "deleteFilter": (brokers.delete_filter, "-c DefaultCluster -f big-orders"),
    "listFilters": (brokers.list_filters, "-c DefaultCluster"),
    "consumerProgress": (consumers.consumer_progress, "-g billing"),
    "consumerConnection": (consumers.consumer_connection, "-g billing"),
    "producerConnection": (consumers.producer_connection, "-g shop -t Orders"),
    "queryMsgById": (
        messages.query_msg_by_id,
        "-t Orders -i 7F00000100002A9F0000000000000000 -f UTF-8",
    ),
    "queryMsgByKey": (messages.query_msg_by_key, "-t Orders -k order-1"),
    "queryMsgByUniqueKey": (
        messages.query_msg_by_unique_key,
        "-t Orders -i 7F0000010C7D18B4AAC2194D5E8C0000",
    ),
    "queryMsgTraceById": (
        traces.query_msg_trace_by_id,
        "-i 7F0000010C7D18B4AAC2194D5E8C0000",
    ),
    "listTimers": (held_messages.list_timers, "-c DefaultCluster -t Orders"),
    "recallMessage": (held_messages.recall_message, "-c DefaultCluster -t Orders -k order-1"),
    "openTransactions": (held_messages.open_transactions, "-c DefaultCluster -g shop"),
    "discardedTransactions": (held_messages.discarded_transactions, "-c DefaultCluster"),
    "resolveTransaction": (
        held_messages.resolve_transaction,
        "-i 7F00000100002A9F0000000000000000 --commit",
    ),
    "resumeTransaction": (
        held_messages.resume_transaction,
        "-i 7F00000100002A9F0000000000000000",
    ),
    "haStatus": (replicas.ha_status, "-c DefaultCluster"),
    "resetOffsetByTime": (offsets.reset_offset_by_time, "-g billing -t Orders -s now"),
    "updateOrderConf": (topics.update_order_conf, "-t Orders -m put -v broker-a:4"),
    "listParked": (parked.list_parked, "-g billing"),
    "resumeParked": (parked.resume_parked, "-g billing -k order-1"),
    "deadLetterParked": (parked.dead_letter_parked, "-g billing -k order-1"),
    "updateAclConfig": (
        plain_acl.update_acl_config,
        '-c DefaultCluster -a orders-app -s - -t "Orders=PUB|SUB" -g billing=SUB',
    ),
    "deleteAclConfig": (plain_acl.delete_acl_config, "-c DefaultCluster -a orders-app"),
    "clusterAclConfigVersion": (plain_acl.cluster_acl_config_version, "-c DefaultCluster"),
    "updateGlobalWhiteAddr": (
        plain_acl.update_global_white_addr,
        '-c DefaultCluster -g "10.10.103.*,192.168.0.*"',
    ),
    "getAclConfig": (plain_acl.get_acl_config, "-c DefaultCluster"),
    "sendMessage": (messages.send_message, '-t Orders -p "one book" -k order-1 -c paid'),
    "consumeMessage": (messages.consume_message, "-t Orders -c 10"),
    "createUser": (users.create_user, "-c DefaultCluster -u shop -t Normal"),
    "updateUser": (users.update_user, "-c DefaultCluster -u shop -s disable"),
    "deleteUser": (users.delete_user, "-c DefaultCluster -u shop"),
    "getUser": (users.get_user, "-c DefaultCluster -u shop"),
    "listUser": (users.list_user, "-c DefaultCluster"),
    "copyUser": (users.copy_user, "-f 127.0.0.1:10911 -t 127.0.0.1:20911 -u shop"),
    "createAcl": (
        policies.create_acl,
        "-c DefaultCluster -s User:shop -r Topic:Orders -a Pub -d Allow",
    ),
    "updateAcl": (
        policies.update_acl,
        "-c DefaultCluster -s User:shop -r Topic:Orders -a Pub,Sub -d Allow -i 10.0.0.0/8",
    ),
    "deleteAcl": (policies.delete_acl, "-c DefaultCluster -s User:shop -r Topic:Orders"),
    "getAcl": (policies.get_acl, "-c DefaultCluster -s User:shop"),
    "listAcl": (policies.list_acl, "-c DefaultCluster -s shop"),
    "copyAcl": (policies.copy_acl, "-f 127.0.0.1:10911 -t 127.0.0.1:20911 -s User:shop"),
    "exportAcl": (policies.export_acl, "-b 127.0.0.1:10911 -f access.yml"),
    "applyAcl": (policies.apply_acl, "-b 127.0.0.1:10911 -f access.yml --dry-run"),
    "whoami": (users.who_am_i, "-b 127.0.0.1:10911"),
    "can-i": (users.can_i, "-b 127.0.0.1:10911 -r Topic:Orders -a Pub"),
}


def load() -> dict[str, Any]:
    """The commands, as the commands of a group."""
    app = typer.Typer(rich_markup_mode=None)
    for name, (verb, example) in _COMMANDS.items():
        # \b prevents click from wrapping the line.
        epilog = f"\b\nExample: mqadmin {name} -n 127.0.0.1:9876 {example}"
        app.command(name, epilog=epilog)(verb)
    app.command("help")(show_help)
    return dict(typer.main.get_group(app).commands)


def show_help(
    ctx: typer.Context,
    command: Annotated[str | None, typer.Argument(help="Name of a command.")] = None,
) -> None:
    """Show the help of a command."""
    parent = ctx.parent
    assert parent is not None
    if command is None:
        print(parent.get_help())
        return
    group: Any = parent.command
    found = group.get_command(parent, command)
    if found is None:
        raise typer.BadParameter(f"there is no command {command!r}; see `{parent.command_path}`")
    print(found.get_help(type(parent)(found, info_name=found.name, parent=parent)))
