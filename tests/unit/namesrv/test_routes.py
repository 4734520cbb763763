"""The table of brokers and topics; scenarios follow RocketMQ's `RouteInfoManager`."""

import json
from collections.abc import Hashable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from bolide.model.names import READ, WRITE
from bolide.namesrv.config import NameServerConfig
from bolide.namesrv.routes import (
    UNIT,
    UNIT_SUBSCRIPTION,
    BrokerKey,
    MinIdNotice,
    Registered,
    RouteTable,
    route_of_zone,
)
from bolide.protocol.bodies.data_version import DataVersion
from bolide.protocol.bodies.queues import QueueMapping
from bolide.protocol.bodies.registration import RegisterBrokerBody
from bolide.protocol.bodies.routes import QueueRoute, TopicRoute
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.headers.namesrv import MinBrokerIdChangeHeader, RegisterBrokerHeader
from tests.support.brokers import CLUSTER, broker_header, topics_body
from tests.support.clock import FakeClock

MASTER, SLAVE, SECOND_SLAVE = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"


class Table(RouteTable):
    """A table with a fake clock and settings that can be changed."""

    def __init__(self, **settings: Any) -> None:
        self.clock = FakeClock()
        self.config = NameServerConfig(**settings)
        super().__init__(lambda: self.config, self.clock)

    def add(
        self,
        address: str = MASTER,
        body: RegisterBrokerBody | None = None,
        *,
        link: Hashable = "link",
        **header: Any,
    ) -> Registered:
        registered = self.register(
            broker_header(address, **header), body or topics_body("orders"), link
        )
        assert registered is not None
        return registered

    def leave(self, address: str = MASTER, name: str = "broker-a") -> tuple[MinIdNotice, ...]:
        return self.unregister(BrokerKey(CLUSTER, address), name)

    def require_route(self, topic: str = "orders") -> TopicRoute:
        """The route, which must be the same as the encoded one."""
        route, encoded = self.route(topic), self.encoded_route(topic)
        assert route is not None
        assert encoded is not None
        assert json.loads(encoded)["brokerDatas"] == [
            {"brokerAddrs": {str(i): a for i, a in sorted(broker.broker_addrs.items())}}
            | {"brokerName": broker.broker_name, "cluster": broker.cluster}
            | {"enableActingMaster": broker.enable_acting_master}
            | ({"zoneName": broker.zone_name} if broker.zone_name else {})
            for broker in route.broker_datas
        ]
        perms = [queue["perm"] for queue in json.loads(encoded)["queueDatas"]]
        assert perms == [queue.perm for queue in route.queue_datas]
        return route

    def addresses(self, topic: str = "orders") -> dict[int, str]:
        (broker,) = self.require_route(topic).broker_datas
        return broker.broker_addrs

    def perm(self, topic: str = "orders") -> int:
        (queues,) = self.require_route(topic).queue_datas
        return queues.perm


def bumped(counter: int, *, state: int = 0) -> DataVersion:
    return DataVersion(counter=counter, state_version=state, timestamp=1)


# Registration


def test_a_registered_broker_routes_its_topics() -> None:
    table = Table()
    table.add(body=topics_body(TopicConfig(topic_name="orders", read_queue_nums=3, perm=6)))
    route = table.require_route()
    assert route.queue_datas == [
        QueueRoute(broker_name="broker-a", read_queue_nums=3, write_queue_nums=16, perm=6)
    ]
    assert table.addresses() == {0: MASTER}
    assert route.filter_server_table == {}


def test_an_unregistered_topic_has_no_route() -> None:
    table = Table()
    table.add()
    assert table.route("unknown") is None
    assert table.encoded_route("unknown") is None


def test_a_topic_on_two_groups_has_both_in_its_route() -> None:
    table = Table()
    table.add()
    table.add(SLAVE, name="broker-b")
    route = table.require_route()
    assert [broker.broker_name for broker in route.broker_datas] == ["broker-a", "broker-b"]
    assert [queues.broker_name for queues in route.queue_datas] == ["broker-a", "broker-b"]


def test_a_slave_receives_its_master_and_registers_no_topics() -> None:
    table = Table()
    assert table.add() == Registered()
    registered = table.add(SLAVE, topics_body("of-the-slave"), broker_id=1)
    assert registered == Registered(MASTER, "10.0.0.1:10912")
    assert table.addresses() == {0: MASTER, 1: SLAVE}
    assert table.route("of-the-slave") is None


def test_a_slave_without_a_master_receives_no_address() -> None:
    assert Table().add(SLAVE, broker_id=1) == Registered()


def test_the_lowest_slave_brings_topics_where_no_master_is() -> None:
    table = Table()
    table.add(SLAVE, broker_id=1)
    table.add(SECOND_SLAVE, topics_body("of-the-second"), broker_id=2)
    assert table.addresses() == {1: SLAVE, 2: SECOND_SLAVE}
    assert table.route("of-the-second") is None


def test_a_slave_of_4_9_registers_no_topics_even_without_a_master() -> None:
    table = Table()
    table.add(SLAVE, broker_id=1, acting=None)
    assert table.route("orders") is None
    assert table.member_group(CLUSTER, "broker-a").broker_addrs == {1: SLAVE}


def test_a_first_registration_of_one_topic_is_refused_and_leaves_no_trace() -> None:
    table = Table()
    body = topics_body()  # only TBW102
    assert table.register(broker_header(), body, "link") is None
    assert table.cluster_info().broker_addr_table == {}
    assert table.cluster_info().cluster_addr_table == {}


def test_a_known_broker_may_register_one_topic() -> None:
    table = Table()
    table.add()
    table.add(body=topics_body(version=bumped(2)))
    assert table.route("TBW102") is not None


def test_a_new_data_version_changes_the_queues() -> None:
    table = Table()
    table.add()
    table.require_route()
    changed = TopicConfig(topic_name="orders", read_queue_nums=1, perm=READ)
    table.add(body=topics_body(changed, version=bumped(2)))
    assert table.perm() == READ


def test_the_same_data_version_leaves_the_queues() -> None:
    table = Table()
    table.add()
    table.add(body=topics_body(TopicConfig(topic_name="orders", perm=READ)))
    assert table.perm() == READ | WRITE


def test_the_same_data_version_still_brings_a_topic_that_is_missing() -> None:
    table = Table()
    table.add()
    table.delete_topic("orders", None)
    table.add()
    assert table.addresses() == {0: MASTER}


def test_topics_that_are_no_longer_listed_stay_unless_the_setting_says_otherwise() -> None:
    table = Table()
    table.add(body=topics_body("orders", "payments"))
    table.add(body=topics_body("orders", version=bumped(2)))
    assert table.route("payments") is not None
    table.config = NameServerConfig(delete_topic_with_broker_registration=True)
    table.add(body=topics_body("orders", version=bumped(3)))
    assert table.route("payments") is None
    assert table.encoded_route("payments") is None
    assert table.route("orders") is not None


def test_a_slave_that_became_master_has_one_id() -> None:
    table = Table()
    table.add()
    table.add(SLAVE, broker_id=1)
    table.leave()
    table.add(SLAVE, broker_id=0)
    assert table.addresses() == {0: SLAVE}


def test_a_newer_state_takes_the_id_of_an_older_one() -> None:
    table = Table()
    table.add(body=topics_body("orders", version=bumped(1, state=1)))
    table.add(SLAVE, topics_body("orders", version=bumped(1, state=2)), broker_id=0)
    assert table.addresses() == {0: SLAVE}


def test_an_older_state_does_not_take_an_id() -> None:
    table = Table()
    table.add(body=topics_body("orders", version=bumped(1, state=2)))
    table.add(SLAVE, topics_body("orders", version=bumped(1, state=1)), broker_id=0)
    assert table.addresses() == {0: MASTER}
    assert table.data_version(BrokerKey(CLUSTER, SLAVE)) is None


def failed_over() -> Table:
    """A table in which the slave of epoch 2 has become master, while the old one is connected."""
    table = Table()
    table.add(body=topics_body("orders", version=bumped(1, state=1)), link="old")
    table.add(SLAVE, broker_id=1, link="new")
    table.add(SLAVE, topics_body("orders", version=bumped(1, state=2)), broker_id=0, link="new")
    return table


def test_a_new_master_replaces_a_living_one_of_an_older_epoch() -> None:
    table = failed_over()
    assert table.addresses() == {0: SLAVE}
    assert table.perm() == READ | WRITE


def test_a_deposed_master_is_refused_and_receives_its_successor() -> None:
    table = failed_over()
    # Its query of the data version must not confirm that all is as it was.
    assert table.data_version(BrokerKey(CLUSTER, MASTER)) is None
    told = table.add(body=topics_body("orders", version=bumped(1, state=1)), link="old")
    assert (told.master_address, told.ha_address) == (SLAVE, "10.0.0.2:10912")
    assert table.addresses() == {0: SLAVE}


def test_a_deposed_master_returns_as_a_slave() -> None:
    table = failed_over()
    table.add(body=topics_body("orders", version=bumped(1, state=2)), broker_id=1, link="old")
    assert table.addresses() == {0: SLAVE, 1: MASTER}


@pytest.mark.parametrize("end", ["unregisters", "loses its connection", "is silent"])
def test_the_end_of_a_deposed_master_leaves_its_successor(end: str) -> None:
    table = failed_over()
    if end == "unregisters":
        table.leave()
    elif end == "loses its connection":
        table.drop_link("old")
    else:
        table.clock.advance(100)
        table.add(SLAVE, topics_body("orders", version=bumped(1, state=2)), link="new")
        table.clock.advance(100)
        table.drop_expired()
    assert table.addresses() == {0: SLAVE}
    assert table.perm() == READ | WRITE


def test_of_two_masters_of_one_epoch_the_last_one_counts() -> None:
    table = Table()
    table.add()
    table.add(SLAVE, broker_id=0)
    assert table.addresses() == {0: SLAVE}
    table.add()
    assert table.addresses() == {0: MASTER}


def test_a_slave_that_fails_to_take_the_masters_id_loses_its_own() -> None:
    table = Table()
    table.add(body=topics_body("orders", version=bumped(1, state=2)))
    table.add(SLAVE, broker_id=1)
    assert table.addresses() == {0: MASTER, 1: SLAVE}
    table.add(SLAVE, topics_body("orders", version=bumped(1, state=1)), broker_id=0)
    # The broker has no registration any more, so nothing else would remove its address.
    assert table.addresses() == {0: MASTER}


def test_filter_servers_are_kept_with_the_broker_and_go_with_it() -> None:
    table = Table()
    table.add(body=topics_body("orders", filter_servers=["10.0.0.1:3000"]))
    assert table.require_route().filter_server_table == {MASTER: ["10.0.0.1:3000"]}
    table.add(body=topics_body("orders", filter_servers=None))
    assert table.require_route().filter_server_table == {MASTER: ["10.0.0.1:3000"]}
    table.add(body=topics_body("orders", filter_servers=[]))
    assert table.require_route().filter_server_table == {}
    encoded = table.encoded_route("orders")
    assert encoded is not None
    assert json.loads(encoded)["filterServerTable"] == {}
    table.add(body=topics_body("orders", filter_servers=["10.0.0.1:3000"]))
    table.leave()
    table.add(body=topics_body("orders", filter_servers=None))
    assert table.require_route().filter_server_table == {}


def test_mappings_of_static_topics_are_in_the_route() -> None:
    table = Table()
    body = topics_body("orders")
    mapping = QueueMapping(topic="orders", bname="broker-a", total_queues=4)
    body.topic_config_serialize_wrapper.topic_queue_mapping_info_map = {"orders": mapping}
    table.add()
    assert b"totalQueues" not in (table.encoded_route("orders") or b"")
    body.topic_config_serialize_wrapper.data_version = bumped(2)
    table.add(body=body)
    assert table.require_route().topic_queue_mapping_by_broker == {"broker-a": mapping}
    assert b"totalQueues" in (table.encoded_route("orders") or b"")
    table.leave()
    table.add(body=topics_body("orders", version=bumped(3)))
    assert table.require_route().topic_queue_mapping_by_broker is None


def test_topics_missing_beside_static_ones_are_not_forgotten() -> None:
    table = Table(delete_topic_with_broker_registration=True)
    table.add(body=topics_body("orders"))
    body = topics_body(version=bumped(2))
    mapping = QueueMapping(topic="static", bname="broker-a")
    body.topic_config_serialize_wrapper.topic_queue_mapping_info_map = {"static": mapping}
    table.add(body=body)
    assert table.route("orders") is not None


# Departure


def test_a_group_goes_with_its_last_member_and_takes_its_topics() -> None:
    table = Table()
    table.add()
    table.add(SLAVE, broker_id=1)
    table.leave(MASTER)
    assert table.addresses() == {1: SLAVE}
    table.leave(SLAVE)
    assert table.route("orders") is None
    assert table.topic_names().topic_list == []
    assert table.cluster_info().cluster_addr_table == {}
    assert table.cluster_info().broker_addr_table == {}


def test_other_groups_stay_when_one_goes() -> None:
    table = Table()
    table.add()
    table.add(SLAVE, name="broker-b")
    table.leave()
    assert table.addresses() == {0: SLAVE}
    assert table.cluster_info().cluster_addr_table == {CLUSTER: ["broker-b"]}


def test_an_unknown_broker_may_leave() -> None:
    table = Table()
    table.add()
    assert table.leave(SLAVE) == ()
    assert table.leave(SLAVE, name="nobody") == ()
    assert table.addresses() == {0: MASTER}


def test_all_brokers_of_a_closed_link_go() -> None:
    table = Table()
    table.add(link="shared")
    table.add(SLAVE, name="broker-b", link="shared")
    table.add(SECOND_SLAVE, name="broker-c", link="other")
    table.drop_link("shared")
    assert table.addresses() == {0: SECOND_SLAVE}


def test_a_closed_link_does_not_remove_a_broker_that_registered_through_a_newer_one() -> None:
    table = Table()
    table.add(link="old")
    table.add(link="new")
    table.drop_link("old")
    assert table.addresses() == {0: MASTER}
    table.drop_link("new")
    assert table.route("orders") is None


def test_the_closed_link_of_a_replaced_broker_leaves_its_successor() -> None:
    table = Table()
    table.add(link="old")
    table.add(SLAVE, topics_body("orders", version=bumped(1, state=1)), broker_id=0, link="new")
    table.drop_link("old")
    assert table.addresses() == {0: SLAVE}
    assert table.data_version(BrokerKey(CLUSTER, MASTER)) is None


def test_a_broker_that_named_another_cluster_than_its_group_goes_with_its_link() -> None:
    table = Table()
    table.add()
    table.add(SLAVE, broker_id=1, cluster="other", link="strayed")
    assert table.addresses() == {0: MASTER, 1: SLAVE}
    table.drop_link("strayed")
    assert table.addresses() == {0: MASTER}


def test_a_silent_broker_goes_after_the_configured_time() -> None:
    table = Table(broker_channel_expired_time=120.0)
    table.add(link="link")
    table.clock.advance(120.0)
    assert table.drop_expired() == ([], ())
    table.clock.advance(0.1)
    assert table.drop_expired() == (["link"], ())
    assert table.route("orders") is None


def test_a_broker_may_ask_for_another_time() -> None:
    table = Table(broker_channel_expired_time=120.0)
    table.add(timeout_ms=1000)
    table.clock.advance(1.1)
    assert table.drop_expired()[0] == ["link"]


def test_heartbeats_keep_a_broker_registered() -> None:
    table = Table(broker_channel_expired_time=10.0)
    table.add()
    for _ in range(3):
        table.clock.advance(9.0)
        table.touch(BrokerKey(CLUSTER, MASTER))
    table.clock.advance(9.0)
    table.add()
    table.clock.advance(9.0)
    assert table.drop_expired()[0] == []


def test_a_heartbeat_does_not_register_an_unknown_broker() -> None:
    table = Table()
    table.touch(BrokerKey(CLUSTER, MASTER))
    assert table.data_version(BrokerKey(CLUSTER, MASTER)) is None


# Acting masters


def test_the_write_bit_goes_with_the_master_of_an_acting_group_and_comes_back() -> None:
    table = Table()
    table.add(acting=True)
    table.add(SLAVE, broker_id=1, acting=True)
    assert table.perm() == READ | WRITE
    table.leave()
    assert table.perm() == READ
    table.add(SLAVE, topics_body("orders", version=bumped(2)), broker_id=1, acting=True)
    assert table.perm() == READ
    table.add(acting=True)
    assert table.perm() == READ | WRITE


def test_the_write_bit_stays_without_acting_masters() -> None:
    table = Table()
    table.add()
    table.add(SLAVE, broker_id=1)
    table.leave()
    assert table.perm() == READ | WRITE


def test_the_lowest_slave_is_shown_as_master_if_both_sides_agree() -> None:
    table = Table(support_acting_master=True)
    table.add(acting=True)
    table.add(SLAVE, broker_id=1, acting=True)
    table.add(SECOND_SLAVE, broker_id=2, acting=True)
    assert table.addresses() == {0: MASTER, 1: SLAVE, 2: SECOND_SLAVE}
    table.leave()
    assert table.addresses() == {0: SLAVE, 2: SECOND_SLAVE}
    assert table.member_group(CLUSTER, "broker-a").broker_addrs == {1: SLAVE, 2: SECOND_SLAVE}
    table.config = NameServerConfig(support_acting_master=False)
    table.clear_encoded()
    assert table.addresses() == {1: SLAVE, 2: SECOND_SLAVE}


def test_the_topic_that_syncs_members_shows_no_acting_master() -> None:
    table = Table(support_acting_master=True)
    topic = "rmq_sys_SYNC_BROKER_MEMBER_broker-a"
    table.add(SLAVE, topics_body("orders", topic), broker_id=1, acting=True)
    assert table.addresses("orders") == {0: SLAVE}
    assert table.addresses(topic) == {1: SLAVE}


# Notices of the lowest id


def notified(told: list[str], lowest: int, address: str, **more: str) -> tuple[MinIdNotice, ...]:
    header = MinBrokerIdChangeHeader(min_broker_id=lowest, min_broker_addr=address, **more)
    return (MinIdNotice(told, header),)


def test_other_members_are_notified_of_a_new_lowest_id() -> None:
    table = Table(notify_min_broker_id_changed=True)
    assert table.add(SLAVE, broker_id=1, acting=True).notices == ()
    expected = notified([SLAVE], 0, MASTER, ha_broker_addr="10.0.0.1:10912")
    assert table.add(acting=True).notices == expected
    assert table.add(acting=True).notices == ()


def test_remaining_members_are_notified_when_the_lowest_id_leaves() -> None:
    table = Table(notify_min_broker_id_changed=True)
    table.add(acting=True, link="master")
    table.add(SLAVE, broker_id=1, acting=True)
    table.add(SECOND_SLAVE, broker_id=2, acting=True)
    expected = notified([SLAVE, SECOND_SLAVE], 1, SLAVE, offline_broker_addr=MASTER)
    assert table.drop_link("master") == expected
    assert table.leave(SECOND_SLAVE) == ()


def test_members_are_notified_only_if_the_setting_is_on() -> None:
    table = Table()
    table.add(SLAVE, broker_id=1, acting=True)
    assert table.add(acting=True).notices == ()
    assert table.leave() == ()


def test_departures_are_notified_only_in_groups_with_acting_masters() -> None:
    table = Table(notify_min_broker_id_changed=True)
    table.add()
    table.add(SLAVE, broker_id=1)
    assert table.leave() == ()


# Administration


def test_a_topic_can_be_routed_to_known_brokers_only() -> None:
    table = Table()
    table.add()
    table.set_topic("new", [QueueRoute(broker_name="broker-a", perm=6)])
    assert table.addresses("new") == {0: MASTER}
    table.set_topic("bad", [QueueRoute(broker_name="broker-a"), QueueRoute(broker_name="who")])
    assert table.route("bad") is None
    assert table.topic_names().topic_list == ["orders", "TBW102", "new"]


def test_a_topic_is_forgotten_everywhere_or_in_one_cluster() -> None:
    table = Table()
    table.add()
    table.add(SLAVE, name="broker-b", cluster="cluster-2")
    table.require_route()
    table.delete_topic("orders", "cluster-2")
    assert table.addresses() == {0: MASTER}
    table.delete_topic("orders", "no-such-cluster")
    assert table.addresses() == {0: MASTER}
    table.delete_topic("orders", None)
    assert table.encoded_route("orders") is None


def test_permissions_of_one_group_change_and_are_counted() -> None:
    table = Table()
    table.add()
    table.add(SLAVE, name="broker-b")
    assert table.wipe_write_permission("broker-a") == 2
    assert [queues.perm for queues in table.require_route().queue_datas] == [READ, READ | WRITE]
    assert table.add_write_permission("broker-a") == 2
    assert [queues.perm for queues in table.require_route().queue_datas] == [6, 6]
    assert table.wipe_write_permission("nobody") == 0


def test_topics_are_listed_by_cluster() -> None:
    table = Table()
    table.add()
    table.add(SLAVE, topics_body("payments"), name="broker-b", cluster="cluster-2")
    assert table.topic_names_of_cluster(CLUSTER).topic_list == ["orders", "TBW102"]
    assert table.topic_names_of_cluster("cluster-2").topic_list == ["TBW102", "payments"]
    assert table.topic_names_of_cluster("none").topic_list == []


@pytest.mark.parametrize(
    ("have", "lack", "expected"),
    [
        (UNIT, 0, ["unit", "both"]),
        (UNIT_SUBSCRIPTION, 0, ["subscribed", "both"]),
        (UNIT_SUBSCRIPTION, UNIT, ["subscribed"]),
    ],
)
def test_topics_are_listed_by_unit_flags(have: int, lack: int, expected: list[str]) -> None:
    table = Table()
    flags = {"plain": 0, "unit": UNIT, "subscribed": UNIT_SUBSCRIPTION, "both": 3}
    topics = [TopicConfig(topic_name=name, topic_sys_flag=flag) for name, flag in flags.items()]
    table.add(body=topics_body(*topics))
    assert table.topic_names_by_flag(have=have, lack=lack).topic_list == expected


def test_system_topics_are_clusters_and_groups_and_name_a_broker_to_ask() -> None:
    table = Table()
    assert table.system_topic_names().broker_addr is None
    table.add()
    found = table.system_topic_names()
    assert (found.topic_list, found.broker_addr) == ([CLUSTER, "broker-a"], MASTER)


def test_an_unknown_group_has_no_members() -> None:
    assert Table().member_group(CLUSTER, "nobody").broker_addrs == {}


# Zones


def test_a_zone_sees_its_own_groups_and_those_without_a_master() -> None:
    table = Table()
    table.add(zone="north", body=topics_body("orders", filter_servers=["f:1"]))
    table.add(SLAVE, name="broker-b", zone="south", body=topics_body("orders"))
    table.add(SECOND_SLAVE, name="broker-c", zone="south", broker_id=1)
    route = table.require_route()
    seen = route_of_zone(route, "NORTH")
    assert [broker.broker_name for broker in seen.broker_datas] == ["broker-a", "broker-c"]
    assert [queues.broker_name for queues in seen.queue_datas] == ["broker-a", "broker-c"]
    assert seen.filter_server_table == {MASTER: ["f:1"]}
    assert route_of_zone(route, "south").filter_server_table == {}


def test_a_broker_that_moves_to_another_zone_is_seen_there() -> None:
    table = Table()
    table.add(zone="north")
    table.require_route()
    table.add(zone="south")
    (broker,) = table.require_route().broker_datas
    assert broker.zone_name == "south"


def test_an_empty_header_field_is_not_needed_to_register() -> None:
    header = RegisterBrokerHeader(broker_name="b", broker_addr="a:1", cluster_name="c", broker_id=0)
    assert Table().register(header, topics_body("orders"), "link") == Registered()


# Arbitrary sequences of events


ADDRESSES = st.sampled_from([f"10.0.0.{number}:10911" for number in range(4)])
LINKS = st.sampled_from(["link-1", "link-2", "link-3"])


class AnyOrder(RuleBasedStateMachine):
    """Brokers of two groups come and go in any order, under any id, through any connection."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Table(
            support_acting_master=True,
            notify_min_broker_id_changed=True,
            delete_topic_with_broker_registration=True,
        )

    @rule(
        address=ADDRESSES,
        broker_id=st.integers(0, 3),
        link=LINKS,
        state=st.integers(0, 2),
        acting=st.sampled_from([None, False, True]),
        topics=st.lists(st.sampled_from(["orders", "payments"]), unique=True),
    )
    def register(
        self,
        address: str,
        broker_id: int,
        link: str,
        state: int,
        acting: bool | None,
        topics: list[str],
    ) -> None:
        header = broker_header(
            address, name=self.group_of(address), broker_id=broker_id, acting=acting
        )
        version = DataVersion(counter=len(topics), state_version=state)
        self.table.register(header, topics_body(*topics, version=version), link)

    @rule(address=ADDRESSES)
    def unregister(self, address: str) -> None:
        self.table.leave(address, self.group_of(address))

    @rule(link=LINKS)
    def lose_link(self, link: str) -> None:
        self.table.drop_link(link)

    @rule(seconds=st.sampled_from([50.0, 130.0]))
    def fall_silent(self, seconds: float) -> None:
        self.table.clock.advance(seconds)
        self.table.drop_expired()

    @rule(change=st.sampled_from(["wipe_write_permission", "add_write_permission"]))
    def change_permission(self, change: str) -> None:
        getattr(self.table, change)("broker-0")

    @invariant()
    def every_address_shown_is_of_a_live_broker(self) -> None:
        for broker in self.table.cluster_info().broker_addr_table.values():
            assert broker.broker_addrs
            for address in broker.broker_addrs.values():
                assert self.table.data_version(BrokerKey(CLUSTER, address)) is not None

    @invariant()
    def every_topic_listed_has_a_route_as_it_is_encoded(self) -> None:
        for topic in self.table.topic_names().topic_list:
            self.table.require_route(topic)

    @staticmethod
    def group_of(address: str) -> str:
        return f"broker-{int(address[7]) % 2}"


def test_no_order_of_events_leaves_a_stale_address_or_route() -> None:
    run_state_machine_as_test(
        AnyOrder, settings=settings(max_examples=60, stateful_step_count=25, deadline=None)
    )
