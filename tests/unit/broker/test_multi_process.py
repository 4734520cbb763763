"""Names, ports and stores of worker processes, and refused starts."""

import socket
from pathlib import Path
from typing import Any

import pytest

from bolide.broker.multi_process import (
    OWN_KEYS,
    refuse_taken_ports,
    refuse_unserved_stores,
    workers_of,
)
from bolide.broker.settings.config import BrokerConfig
from bolide.errors import ConfigError
from bolide.store.config import StoreConfig
from tests.interop.bench import BROKER_NEIGHBOURS
from tests.support.ports import free_port

ROOT = Path("/somewhere/store")


def config(**settings: Any) -> BrokerConfig:
    chosen: dict[str, Any] = {"broker_name": "b", "workers": 3, "bind_address": "127.0.0.1"}
    return BrokerConfig(**chosen | settings)


def test_each_worker_has_a_name_ports_and_a_store_of_its_own() -> None:
    found = workers_of(config(listen_port=10911), StoreConfig(root=ROOT))
    assert [each.broker_name for each in found] == ["b-0", "b-1", "b-2"]
    assert [each.served_ports for each in found] == [
        (10911, 10909, 10912), (10921, 10919, 10922), (10931, 10929, 10932),
    ]  # fmt: skip
    assert [each.ha_listen_port for each in found] == [10912, 10922, 10932]
    assert [each.root for each in found] == [ROOT / f"worker-{n}" for n in range(3)]


def test_a_worker_overrides_only_its_own_settings() -> None:
    told = workers_of(config(), StoreConfig(root=ROOT))[1].texts()
    assert told["brokerConfigPath"] == str(ROOT / "worker-1" / "config" / "broker.properties")
    assert told.keys() <= OWN_KEYS


def test_a_port_for_replicas_that_is_chosen_moves_along() -> None:
    found = workers_of(config(ha_listen_port=20000), StoreConfig(root=ROOT))
    assert [each.ha_listen_port for each in found] == [20000, 20010, 20020]


@pytest.mark.parametrize(
    ("settings", "ports"),
    [
        ({}, [None] * 3),
        (
            {"metrics_prom_exporter_port": 6000, "metrics_port_given": True},
            ["6000", "6001", "6002"],
        ),
        ({"metrics_prom_exporter_port": 0, "metrics_port_given": True}, ["0"] * 3),
    ],
)
def test_each_worker_has_a_port_for_metrics(settings: Any, ports: list[str | None]) -> None:
    found = workers_of(config(**settings), StoreConfig(root=ROOT))
    assert [each.texts().get("metricsPromExporterPort") for each in found] == ports


def test_ports_that_the_system_chooses_are_left_to_it() -> None:
    found = workers_of(config(listen_port=0), StoreConfig(root=ROOT))
    assert {each.listen_port for each in found} == {0}
    assert {each.ha_listen_port for each in found} == {0}


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"listen_port": 65520}, "worker-2 would need port 65540"),
        ({"listen_port": 10911, "ha_listen_port": 10919}, "worker-0 and worker-1 would share"),
    ],
)
def test_ports_that_do_not_go_together_are_refused(settings: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        workers_of(config(**settings), StoreConfig(root=ROOT))


@pytest.mark.parametrize("key", ["commit_log_paths", "read_only_log_paths"])
def test_workers_do_not_share_a_commit_log(key: str) -> None:
    paths: dict[str, Any] = {key: (ROOT / "log",)}
    store = StoreConfig(root=ROOT, **paths)
    with pytest.raises(ConfigError, match=r"workers=3: .*storePathCommitLog"):
        workers_of(config(), store)


def test_a_port_in_use_is_reported_with_its_worker() -> None:
    port = free_port((*BROKER_NEIGHBOURS, 8, 10))
    workers = workers_of(config(workers=2, listen_port=port), StoreConfig(root=ROOT))
    refuse_taken_ports(workers, "127.0.0.1")
    with (
        socket.create_server(("127.0.0.1", port + 8)),
        pytest.raises(ConfigError, match=f"worker-1 cannot listen on 127.0.0.1:{port + 8}"),
    ):
        refuse_taken_ports(workers, "127.0.0.1")


# ---- stores


def stores(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).mkdir(parents=True)
    return root


@pytest.mark.parametrize("workers", [1, 2])
def test_a_new_root_is_accepted(tmp_path: Path, workers: int) -> None:
    refuse_unserved_stores(tmp_path / "missing", workers)
    refuse_unserved_stores(tmp_path, workers)


@pytest.mark.parametrize("workers", [2, 3, 5])
def test_the_same_number_of_workers_or_more_is_accepted(tmp_path: Path, workers: int) -> None:
    refuse_unserved_stores(stores(tmp_path, "worker-0", "worker-1"), workers)


def test_fewer_workers_than_stores_are_refused_by_name(tmp_path: Path) -> None:
    root = stores(tmp_path, "worker-0", "worker-1", "worker-10", "worker-2", "worker-x")
    with pytest.raises(ConfigError, match=r"of worker-2, worker-10 in .*--workers 11"):
        refuse_unserved_stores(root, 2)


def test_a_broker_alone_does_not_pass_over_stores_of_workers(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"of worker-0, worker-1 in .*--workers 2"):
        refuse_unserved_stores(stores(tmp_path, "worker-0", "worker-1"), 1)


def test_the_store_of_the_first_worker_alone_is_served_by_two(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"of worker-0 in .*--workers 2"):
        refuse_unserved_stores(stores(tmp_path, "worker-0"), 1)
    refuse_unserved_stores(tmp_path, 2)


@pytest.mark.parametrize("name", ["commitlog", "consumequeue"])
def test_workers_do_not_pass_over_the_store_of_a_broker_alone(tmp_path: Path, name: str) -> None:
    refuse_unserved_stores(stores(tmp_path, name), 1)
    with pytest.raises(ConfigError, match=r"without workers; move all of it to .*worker-0"):
        refuse_unserved_stores(tmp_path, 2)
