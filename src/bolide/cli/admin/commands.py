"""The table of admin commands by subject: RocketMQ's name, function and example of each."""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import typer

from bolide.cli.admin import (
    audit,
    brokers,
    clusters,
    consumers,
    dead_letters,
    groups,
    held_messages,
    messages,
    offsets,
    parked,
    plain_acl,
    policies,
    replicas,
    running_consumers,
    scans,
    sending,
    static_topics,
    topics,
    traces,
    users,
)
from bolide.cli.admin.common_options import add_common_options
from bolide.cli.tls_options import add_tls_options

Verb = Callable[..., None]


class Command(NamedTuple):
    verb: Verb
    example: str
    changes: bool


def reads(verb: Verb, example: str) -> Command:
    """A command that only looks, so that `--watch` can repeat it."""
    return Command(verb, example, changes=False)


def changes(verb: Verb, example: str) -> Command:
    return Command(verb, example, changes=True)


_SECTIONS: dict[str, dict[str, Command]] = {
    "Topics": {
        "updateTopic": changes(topics.update_topic, "-c DefaultCluster -t Orders -r 8 -w 8"),
        "updateTopicPerm": changes(topics.update_topic_perm, "-c DefaultCluster -t Orders -p 4"),
        "deleteTopic": changes(topics.delete_topic, "-c DefaultCluster -t Orders"),
        "topicList": reads(topics.topic_list, "-c"),
        "topicRoute": reads(topics.topic_route, "-t Orders -l"),
        "topicStatus": reads(topics.topic_status, "-t Orders"),
        "updateOrderConf": changes(topics.update_order_conf, "-t Orders -m put -v broker-a:4"),
        "updateStaticTopic": changes(
            static_topics.update_static_topic, "-c DefaultCluster -t Orders -qn 8"
        ),
        "remappingStaticTopic": changes(
            static_topics.remapping_static_topic, "-b broker-a,broker-b -t Orders"
        ),
    },
    "Consumer groups": {
        "updateSubGroup": changes(groups.update_sub_group, "-c DefaultCluster -g billing -r 3"),
        "updateSubGroupList": changes(
            groups.update_sub_group_list, "-c DefaultCluster -f groups.json"
        ),
        "getConsumerConfig": reads(groups.get_consumer_config, "-g billing"),
        "deleteSubGroup": changes(groups.delete_sub_group, "-c DefaultCluster -g billing -r true"),
        "setConsumeMode": changes(
            groups.set_consume_mode, "-c DefaultCluster -t Orders -g billing -m POP"
        ),
        "consumerProgress": reads(consumers.consumer_progress, "-g billing"),
        "consumerStatus": reads(running_consumers.consumer_status, "-g billing -s"),
        "consumerConnection": reads(consumers.consumer_connection, "-g billing"),
        "allocateMQ": reads(consumers.allocate_mq, "-t Orders -i 10.0.0.1,10.0.0.2"),
        "resetOffsetByTime": changes(offsets.reset_offset_by_time, "-g billing -t Orders -s now"),
        "skipAccumulatedMessage": changes(
            offsets.skip_accumulated_message, "-g billing -t Orders --dry-run"
        ),
        "cloneGroupOffset": changes(
            offsets.clone_group_offset, "-s billing -d billing-2 -t Orders"
        ),
        "listDeadLetters": reads(dead_letters.list_dead_letters, "-g billing"),
        "redriveDeadLetters": changes(
            dead_letters.redrive_dead_letters, "-g billing -t Orders --dry-run"
        ),
        "listParked": reads(parked.list_parked, "-g billing"),
        "resumeParked": changes(parked.resume_parked, "-g billing -k order-1"),
        "deadLetterParked": changes(parked.dead_letter_parked, "-g billing -k order-1"),
    },
    "Producers": {
        "producer": reads(consumers.producer, "-b 127.0.0.1:10911"),
        "producerConnection": reads(consumers.producer_connection, "-g shop -t Orders"),
    },
    "Messages": {
        "sendMessage": changes(sending.send_message, '-t Orders -p "one book" -k order-1 -c paid'),
        "checkMsgSendRT": changes(sending.check_msg_send_rt, "-t Orders -a 20"),
        "consumeMessage": reads(scans.consume_message, "-t Orders -c 10"),
        "printMsg": reads(scans.print_msg, "-t Orders -s paid -b 2026-01-31#12:00:00:000 -d false"),
        "printMsgByQueue": reads(
            scans.print_msg_by_queue, "-t Orders -a broker-a -i 0 -p true -f true"
        ),
        "queryMsgById": reads(
            messages.query_msg_by_id, "-t Orders -i 7F00000100002A9F0000000000000000 -f UTF-8"
        ),
        "queryMsgByKey": reads(messages.query_msg_by_key, "-t Orders -k order-1"),
        "queryMsgByUniqueKey": reads(
            messages.query_msg_by_unique_key, "-t Orders -i 7F0000010C7D18B4AAC2194D5E8C0000"
        ),
        "queryMsgByOffset": reads(
            scans.query_msg_by_offset, "-t Orders -b broker-a -i 0 -o 0 -f UTF-8"
        ),
        "queryCq": reads(scans.query_cq, "-t Orders -q 0 -i 0 -b 127.0.0.1:10911"),
        "queryMsgTraceById": reads(
            traces.query_msg_trace_by_id, "-i 7F0000010C7D18B4AAC2194D5E8C0000"
        ),
        "listTimers": reads(held_messages.list_timers, "-c DefaultCluster -t Orders"),
        "recallMessage": changes(
            held_messages.recall_message, "-c DefaultCluster -t Orders -k order-1"
        ),
        "openTransactions": reads(held_messages.open_transactions, "-c DefaultCluster -g shop"),
        "discardedTransactions": reads(held_messages.discarded_transactions, "-c DefaultCluster"),
        "resolveTransaction": changes(
            held_messages.resolve_transaction, "-i 7F00000100002A9F0000000000000000 --commit"
        ),
        "resumeTransaction": changes(
            held_messages.resume_transaction, "-i 7F00000100002A9F0000000000000000"
        ),
    },
    "Clusters and brokers": {
        "clusterList": reads(clusters.cluster_list, "-m"),
        "brokerStatus": reads(brokers.broker_status, "-b 127.0.0.1:10911"),
        "getBrokerConfig": reads(brokers.get_broker_config, "-b 127.0.0.1:10911"),
        "updateBrokerConfig": changes(
            brokers.update_broker_config, "-b 127.0.0.1:10911 -k fileReservedTime -v 48"
        ),
        "audit": reads(audit.audit, "-c DefaultCluster --since 1h"),
        "updateFilter": changes(
            brokers.update_filter, "-c DefaultCluster -f big-orders -s big_orders.py"
        ),
        "deleteFilter": changes(brokers.delete_filter, "-c DefaultCluster -f big-orders"),
        "listFilters": reads(brokers.list_filters, "-c DefaultCluster"),
    },
    "Replicas and controllers": {
        "haStatus": reads(replicas.ha_status, "-c DefaultCluster"),
    },
    "Users and permissions": {
        "createUser": changes(users.create_user, "-c DefaultCluster -u shop -t Normal"),
        "updateUser": changes(users.update_user, "-c DefaultCluster -u shop -s disable"),
        "deleteUser": changes(users.delete_user, "-c DefaultCluster -u shop"),
        "getUser": reads(users.get_user, "-c DefaultCluster -u shop"),
        "listUser": reads(users.list_user, "-c DefaultCluster"),
        "copyUser": changes(users.copy_user, "-f 127.0.0.1:10911 -t 127.0.0.1:20911 -u shop"),
        "createAcl": changes(
            policies.create_acl, "-c DefaultCluster -s User:shop -r Topic:Orders -a Pub -d Allow"
        ),
        "updateAcl": changes(
            policies.update_acl,
            "-c DefaultCluster -s User:shop -r Topic:Orders -a Pub,Sub -d Allow -i 10.0.0.0/8",
        ),
        "deleteAcl": changes(policies.delete_acl, "-c DefaultCluster -s User:shop -r Topic:Orders"),
        "getAcl": reads(policies.get_acl, "-c DefaultCluster -s User:shop"),
        "listAcl": reads(policies.list_acl, "-c DefaultCluster -s shop"),
        "copyAcl": changes(policies.copy_acl, "-f 127.0.0.1:10911 -t 127.0.0.1:20911 -s User:shop"),
        "exportAcl": reads(policies.export_acl, "-b 127.0.0.1:10911 -f access.yml"),
        "applyAcl": changes(policies.apply_acl, "-b 127.0.0.1:10911 -f access.yml --dry-run"),
        "whoami": reads(users.who_am_i, "-b 127.0.0.1:10911"),
        "can-i": reads(users.can_i, "-b 127.0.0.1:10911 -r Topic:Orders -a Pub"),
    },
    "Accounts of plain_acl.yml (ACL 1.0)": {
        "updateAclConfig": changes(
            plain_acl.update_acl_config,
            '-c DefaultCluster -a orders-app -s - -t "Orders=PUB|SUB" -g billing=SUB',
        ),
        "deleteAclConfig": changes(plain_acl.delete_acl_config, "-c DefaultCluster -a orders-app"),
        "clusterAclConfigVersion": reads(plain_acl.cluster_acl_config_version, "-c DefaultCluster"),
        "updateGlobalWhiteAddr": changes(
            plain_acl.update_global_white_addr, '-c DefaultCluster -g "10.10.103.*,192.168.0.*"'
        ),
        "getAclConfig": reads(plain_acl.get_acl_config, "-c DefaultCluster"),
    },
}


COMMANDS: dict[str, Command] = {
    name: command for section in _SECTIONS.values() for name, command in section.items()
}


def load() -> dict[str, Any]:
    """The commands, as the commands of a group."""
    return {name: load_one(name) for name in [*COMMANDS, "help"]}


def load_one(name: str) -> Any:
    """One command, by its exact name: making all of them takes longer than most run."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    if name == "help":
        app.command("help")(show_help)
        return typer.main.get_command(app)
    verb, example, changes_something = COMMANDS[name]
    # \b prevents click from wrapping the line.
    epilog = f"\b\nExample: mqadmin {name} -n 127.0.0.1:9876 {example}"
    app.command(name, epilog=epilog)(verb)
    command = typer.main.get_command(app)
    add_common_options(command, repeats=not changes_something)
    return add_tls_options({name: command})[name]


def summaries() -> dict[str, dict[str, str]]:
    """What each command does, by subject and name, in the order of `--help`."""
    found = {
        title: {name: _summary(command.verb) for name, command in section.items()}
        for title, section in _SECTIONS.items()
    }
    return found | {"Help": {"help": _summary(show_help)}}


def _summary(verb: Verb) -> str:
    return (verb.__doc__ or "").partition("\n")[0]


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
