"""Members, ports, directories and configuration files of a local cluster."""

import stat
from pathlib import Path

import pytest

from bolide.broker.settings.config import load_settings
from bolide.cluster.plan import Addresses, ClusterOptions, ClusterPlan, Member, Role
from bolide.config import load, read_file
from bolide.errors import ConfigError
from bolide.namesrv.config import ALL_IGNORED, NameServerConfig


def plan_of(options: ClusterOptions, subnet: str = "") -> ClusterPlan:
    names = ClusterPlan.names(options)
    announced = {name: f"10.0.0.{number}" for number, name in enumerate(names)}
    bound = {name: f"10.0.1.{number}" for number, name in enumerate(names)}
    return ClusterPlan.of(options, Addresses(announced=announced, bound=bound, subnet=subnet))


def settings_of(options: ClusterOptions, name: str, subnet: str = "") -> dict[str, str]:
    return dict(plan_of(options, subnet).require(name).settings)


def test_members_have_roles_names_and_the_usual_ports() -> None:
    plan = plan_of(ClusterOptions(brokers=2, replicas=2, namesrvs=2, data=Path("/data")))

    assert [(each.name, each.role, each.port) for each in plan.members] == [
        ("namesrv-0", Role.NAMESRV, 9876),
        ("namesrv-1", Role.NAMESRV, 9886),
        ("broker-a-0", Role.BROKER, 10911),
        ("broker-a-1", Role.BROKER, 11011),
        ("broker-b-0", Role.BROKER, 11111),
        ("broker-b-1", Role.BROKER, 11211),
    ]
    assert plan.name_servers == "10.0.0.0:9876;10.0.0.1:9886"
    assert plan.require("broker-a-1").directory == Path("/data/broker-a-1")


def test_no_port_is_served_twice() -> None:
    options = ClusterOptions(brokers=20, replicas=9, namesrvs=9, controllers=8)
    single = ClusterOptions(brokers=20, workers=9)
    for chosen in (options, single):
        ports = [port for each in plan_of(chosen).members for port in each.served_ports]

        assert len(ports) == len(set(ports))


def test_controllers_are_found_by_the_member_in_which_they_run() -> None:
    embedded = ClusterOptions(replicas=2, namesrvs=3, controllers=3)
    alone = ClusterOptions(replicas=2, namesrvs=1, controllers=1, base_port=20000)
    apart = ClusterOptions(replicas=2, namesrvs=2, controllers=1)

    assert plan_of(embedded).controllers["namesrv-1"] == "10.0.0.1:10086"
    assert plan_of(alone).controllers == {"namesrv-0": "10.0.0.0:20200"}
    assert plan_of(apart).controllers == {"controller-0": "10.0.0.2:10076"}
    assert plan_of(ClusterOptions()).controllers == {}


def test_a_broker_binds_its_own_address_and_announces_another() -> None:
    settings = settings_of(ClusterOptions(), "broker-a-0")

    assert settings["bindAddress"] == "10.0.1.1"
    assert settings["brokerIP1"] == settings["brokerIP2"] == "10.0.0.1"
    assert settings["namesrvAddr"] == "10.0.0.0:9876"
    assert settings["listenPort"] == "10911"
    assert settings["haListenPort"] == "10912"


def test_a_master_alone_is_asynchronous_and_one_with_slaves_waits_for_them() -> None:
    alone = settings_of(ClusterOptions(), "broker-a-0")
    master = settings_of(ClusterOptions(replicas=2), "broker-a-0")
    slave = settings_of(ClusterOptions(replicas=2), "broker-a-1")
    hasty = settings_of(ClusterOptions(replicas=2, asynchronous=True), "broker-a-0")

    assert (alone["brokerRole"], alone["brokerId"]) == ("ASYNC_MASTER", "0")
    assert (master["brokerRole"], master["brokerId"]) == ("SYNC_MASTER", "0")
    assert (slave["brokerRole"], slave["brokerId"]) == ("SLAVE", "1")
    assert hasty["brokerRole"] == "ASYNC_MASTER"
    assert master["brokerName"] == slave["brokerName"] == "broker-a"


def test_controllers_run_in_as_many_name_servers() -> None:
    options = ClusterOptions(replicas=2, namesrvs=3, controllers=3, data=Path("/data"))
    settings = settings_of(options, "namesrv-1")

    assert [each.name for each in plan_of(options).members[:3]] == [
        "namesrv-0", "namesrv-1", "namesrv-2",
    ]  # fmt: skip
    assert settings["enableControllerInNamesrv"] == "true"
    assert settings["controllerDLegerPeers"] == (
        "n0-10.0.0.0:10076;n1-10.0.0.1:10086;n2-10.0.0.2:10096"
    )
    assert settings["controllerDLegerSelfId"] == "n1"
    assert settings["controllerStorePath"] == "/data/namesrv-1/raft"
    assert plan_of(options).require("namesrv-1").served_ports == (9886, 10086, 10186)


def test_another_number_of_controllers_runs_alone() -> None:
    options = ClusterOptions(replicas=2, namesrvs=2, controllers=3)
    settings = settings_of(options, "controller-2")

    assert "enableControllerInNamesrv" not in settings_of(options, "namesrv-0")
    assert settings["controllerDLegerSelfId"] == "n2"
    assert settings["bindAddress"] == "10.0.1.4"
    assert plan_of(options).require("controller-2").served_ports == (10096, 10196)


def test_with_controllers_brokers_have_no_role_of_their_own() -> None:
    settings = settings_of(ClusterOptions(replicas=2, controllers=1), "broker-a-1")

    assert settings["enableControllerMode"] == "true"
    assert settings["controllerAddr"] == "10.0.0.0:10076"
    assert "brokerRole" not in settings
    assert "brokerId" not in settings


def test_members_off_loopback_let_each_other_in() -> None:
    options = ClusterOptions(replicas=2, namesrvs=3, controllers=3)
    subnet = "10.0.0.0/24"

    assert settings_of(options, "broker-a-0", subnet)["haAllowedReplicas"] == subnet
    assert settings_of(options, "broker-a-0", subnet)["allowRemoteAdmin"] == "true"
    passwords = {
        each.settings["controllerRaftPassword"]
        for each in plan_of(options, subnet).members
        if each.role is Role.NAMESRV
    }
    assert len(passwords) == 1
    assert "controllerRaftPassword" not in settings_of(options, "namesrv-0")
    assert "haAllowedReplicas" not in settings_of(options, "broker-a-0")


def test_workers_share_the_settings_of_their_broker() -> None:
    options = ClusterOptions(workers=3)

    assert settings_of(options, "broker-a-0")["workers"] == "3"
    assert plan_of(options).require("broker-a-0").served_ports == (
        10909, 10911, 10912, 10919, 10921, 10922, 10929, 10931, 10932,
    )  # fmt: skip


def log_file(directory: Path, size: int) -> None:
    directory.mkdir(parents=True)
    with (directory / f"{0:020d}").open("wb") as file:
        file.truncate(size)


def test_commit_log_files_have_the_size_of_the_options(tmp_path: Path) -> None:
    key = "mappedFileSizeCommitLog"
    options = ClusterOptions(data=tmp_path, log_file_size=65536)
    given = ClusterOptions(data=tmp_path, log_file_size=65536, settings={key: "4096"})
    old = "mapedFileSizeCommitLog"
    spelled = ClusterOptions(data=tmp_path, log_file_size=65536, settings={old: "4096"})

    assert settings_of(options, "broker-a-0")[key] == "65536"
    assert settings_of(given, "broker-a-0")[key] == "4096"
    assert key not in settings_of(spelled, "broker-a-0")
    assert key not in settings_of(ClusterOptions(data=tmp_path), "broker-a-0")


def test_a_group_with_files_keeps_their_size_for_all_its_members(tmp_path: Path) -> None:
    log_file(tmp_path / "broker-a-1" / "store" / "commitlog", 8192)
    log_file(tmp_path / "broker-b-0" / "store" / "worker-1" / "commitlog", 16384)
    log_file(tmp_path / "broker-c-0" / "store" / "commitlog", 0)
    options = ClusterOptions(brokers=3, replicas=3, data=tmp_path, log_file_size=65536)

    sizes = {
        each.name: each.settings["mappedFileSizeCommitLog"]
        for each in plan_of(options).members
        if each.role is Role.BROKER
    }

    assert {sizes[f"broker-a-{replica}"] for replica in range(3)} == {"8192"}
    assert {sizes[f"broker-b-{replica}"] for replica in range(3)} == {"16384"}
    assert {sizes[f"broker-c-{replica}"] for replica in range(3)} == {"65536"}


def test_the_files_are_read_by_the_servers(tmp_path: Path) -> None:
    options = ClusterOptions(data=tmp_path, settings={"flushDiskType": "SYNC_FLUSH"})
    plan = plan_of(options)

    plan.write_files()

    broker, store = load_settings(read_file(plan.require("broker-a-0").config_file), strict=True)
    assert broker.broker_name == "broker-a"
    assert store.root == tmp_path / "broker-a-0" / "store"
    names = read_file(plan.require("namesrv-0").config_file)
    assert load(NameServerConfig, names, ignored=ALL_IGNORED, strict=True).listen_port == 9876
    mode = plan.require("broker-a-0").config_file.stat().st_mode
    assert stat.S_IMODE(mode) == 0o600


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"brokers": 0}, "--brokers 0"),
        ({"replicas": 10}, "--replicas 10"),
        ({"base_port": 65000}, "--base-port 65000"),
        ({"network": "tin"}, "--network tin"),
        ({"workers": 10}, "--workers 10"),
        ({"settings": {"brokerName": "x"}}, "brokerName"),
    ],
)
def test_impossible_options_are_refused_by_name(options: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        ClusterOptions(**options)  # type: ignore[arg-type]


def test_an_unknown_member_is_refused_with_those_that_exist() -> None:
    with pytest.raises(ConfigError, match="broker-z-0: no such member; there are namesrv-0"):
        plan_of(ClusterOptions()).require("broker-z-0")


def test_a_member_knows_its_files() -> None:
    member = Member(
        name="x", role=Role.BROKER, port=1, served_ports=(1,), directory=Path("/data/x")
    )

    assert member.config_file == Path("/data/x/broker.conf")
    assert member.output_file == Path("/data/x/output.log")
