"""Which members a local cluster has: names, ports, directories and configuration files.

The ports of all members differ, whatever the network, so that a plan also fits one address.
From the base port P, 9876 by default:

    NameServer k      P + 10 k
    controller k      P + 200 + 10 k; its Raft port is 100 higher
    broker k          P + 1035 + 100 k; the VIP port is 2 lower, the replication port 1 higher, the
                      ports of the next worker 10 higher
"""

import secrets
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from bolide.errors import ConfigError
from bolide.private_files import SECRET_MODE, create_file

NETWORKS = ("auto", "plain", "proxy", "namespaces")
RAFT_PORT_DELTA = 100
VIP_PORT_DELTA = -2
WORKER_PORT_STEP = 10

BROKER_PORT_STEP = 100
_NAMESRV_STEP, _CONTROLLER_STEP = 10, 10
_FIRST_CONTROLLER, _FIRST_BROKER = 200, 1035
_HIGHEST_PORT = 65535
_CONTROLLER_GROUP = "bolide-controllers"
_LOG_FILE_SIZE = "mappedFileSizeCommitLog"
_LOG_FILE_SIZE_KEYS = frozenset((_LOG_FILE_SIZE, "mapedFileSizeCommitLog"))
_OWN_KEYS = frozenset(
    ("brokerName", "brokerId", "brokerRole", "brokerClusterName", "listenPort", "haListenPort",
     "bindAddress", "brokerIP1", "brokerIP2", "namesrvAddr", "storePathRootDir", "workers",
     "enableControllerMode", "controllerAddr", "brokerConfigPath")
)  # fmt: skip
"""Settings that follow from the options."""


class Role(StrEnum):
    NAMESRV = "namesrv"
    CONTROLLER = "controller"
    BROKER = "broker"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """What a local cluster consists of.

    Raises:
        ConfigError: a number is out of range, or two options conflict.
    """

    brokers: int = 1
    """Broker groups."""
    replicas: int = 1
    """Members of each group, including the master."""
    namesrvs: int = 1
    controllers: int = 0
    """With as many controllers as NameServers they run in the NameServers."""
    workers: int = 1
    asynchronous: bool = False
    """Whether masters answer without waiting for a slave: ASYNC_MASTER."""
    data: Path = Path("cluster")
    base_port: int = 9876
    network: str = "auto"
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of all brokers, as in a broker.conf."""
    log_file_size: int | None = None
    """Bytes of a commit log file unless the settings say so; None: as by default in a broker. A
    group that has files keeps their size."""

    def __post_init__(self) -> None:
        bounds = {
            "brokers": (1, 20), "replicas": (1, 9), "namesrvs": (1, 9), "controllers": (0, 9),
            "workers": (1, 9), "base_port": (1, _HIGHEST_PORT),
        }  # fmt: skip
        for name, (least, most) in bounds.items():
            if not least <= (value := getattr(self, name)) <= most:
                option = name.replace("_", "-")
                raise ConfigError(f"--{option} {value}: must be between {least} and {most}")
        if self.network not in NETWORKS:
            raise ConfigError(f"--network {self.network}: must be one of {', '.join(NETWORKS)}")
        if taken := sorted(_OWN_KEYS & self.settings.keys()):
            raise ConfigError(f"{taken[0]} is set by the options of the cluster")
        if self.asynchronous and self.controllers:
            raise ConfigError(
                "--async and --controllers exclude each other: an elected master waits for its"
                " sync-state set; allAckInSyncStateSet=false changes that"
            )
        self._check_settings()
        last = self.base_port + _FIRST_BROKER + BROKER_PORT_STEP * self.brokers * self.replicas
        if last > _HIGHEST_PORT:
            raise ConfigError(f"--base-port {self.base_port}: the ports would reach {last}")

    def _check_settings(self) -> None:
        """Refuse what the brokers would refuse, and keys that they would only warn of."""
        from bolide.broker.settings.config import load_settings  # noqa: PLC0415  not for `down`

        elected = {"enableControllerMode": "true", "controllerAddr": "127.0.0.1:1"}
        load_settings(
            {**self.settings, **(elected if self.controllers else {})}, strict=True, environment={}
        )

    @property
    def are_controllers_embedded(self) -> bool:
        return 0 < self.controllers == self.namesrvs


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One server process of the cluster."""

    name: str
    role: Role
    port: int
    """The port that others know it by."""
    served_ports: tuple[int, ...]
    """All ports on which it listens."""
    directory: Path
    group: str = ""
    """For brokers: the name of the broker group."""
    controller_port: int = 0
    """The port of the controller that runs in it; 0 if none does."""
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def config_file(self) -> Path:
        return self.directory / f"{self.role}.conf"

    @property
    def output_file(self) -> Path:
        return self.directory / "output.log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Host addresses of the members, which a network assigns by name."""

    announced: Mapping[str, str]
    """Where others reach a member."""
    bound: Mapping[str, str]
    """Where a member listens."""
    subnet: str = ""
    """The network of the members if it is not loopback, from which servers take less by default."""


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """The members of a cluster, in the order in which they start."""

    options: ClusterOptions
    members: tuple[Member, ...]
    addresses: Addresses

    @classmethod
    def names(cls, options: ClusterOptions) -> list[str]:
        """The names of all members; a network assigns their addresses."""
        names = [f"namesrv-{number}" for number in range(options.namesrvs)]
        if not options.are_controllers_embedded:
            names += [f"controller-{number}" for number in range(options.controllers)]
        return names + [
            _broker_name(group, replica)
            for group in range(options.brokers)
            for replica in range(options.replicas)
        ]

    @classmethod
    def of(cls, options: ClusterOptions, addresses: Addresses) -> "ClusterPlan":
        maker = _Maker(options, addresses)
        return cls(options, tuple(maker.members()), addresses)

    @property
    def name_servers(self) -> str:
        """Addresses of the NameServers, as clients take them."""
        return ";".join(self.address(each) for each in self.members if each.role is Role.NAMESRV)

    def address(self, member: Member) -> str:
        return f"{self.addresses.announced[member.name]}:{member.port}"

    @property
    def controllers(self) -> dict[str, str]:
        """Addresses of the controllers, by the name of the member in which each runs."""
        return {
            each.name: f"{self.addresses.announced[each.name]}:{each.controller_port}"
            for each in self.members
            if each.controller_port
        }

    def require(self, name: str) -> Member:
        """Raises ConfigError, with the names that exist."""
        for member in self.members:
            if member.name == name:
                return member
        known = ", ".join(each.name for each in self.members)
        raise ConfigError(f"{name}: no such member; there are {known}")

    def write_files(self) -> None:
        """Write the configuration file of each member into its directory."""
        for member in self.members:
            member.directory.mkdir(parents=True, exist_ok=True)
            text = "".join(f"{key}={value}\n" for key, value in member.settings.items())
            member.config_file.unlink(missing_ok=True)
            # Secret: it may have the password of the controllers.
            with create_file(member.config_file, SECRET_MODE) as file:
                file.write(text.encode())


@dataclass(slots=True)
class _Maker:
    """Derives the members from the options and the addresses."""

    options: ClusterOptions
    addresses: Addresses
    password: str = field(default_factory=lambda: secrets.token_hex(16))

    def members(self) -> list[Member]:
        options = self.options
        found = [self._name_server(number) for number in range(options.namesrvs)]
        if not options.are_controllers_embedded:
            found += [self._controller(number) for number in range(options.controllers)]
        for group in range(options.brokers):
            found += [self._broker(group, replica) for replica in range(options.replicas)]
        return found

    def _name_server(self, number: int) -> Member:
        name, port = f"namesrv-{number}", self.options.base_port + _NAMESRV_STEP * number
        directory = self._directory(name)
        ports: tuple[int, ...] = (port,)
        controller_port = 0
        settings = {
            "listenPort": str(port),
            "bindAddress": self.addresses.bound[name],
            "kvConfigPath": str(directory / "kvConfig.json"),
            "configStorePath": str(directory / "namesrv.properties"),
            **self._openness(),
        }
        if self.options.are_controllers_embedded:
            settings |= {"enableControllerInNamesrv": "true"} | self._controller_settings(number)
            ports += self._controller_ports(number)
            controller_port = ports[1]
        return Member(
            name=name, role=Role.NAMESRV, port=port, served_ports=ports, directory=directory,
            settings=settings, controller_port=controller_port,
        )  # fmt: skip

    def _controller(self, number: int) -> Member:
        name = f"controller-{number}"
        ports = self._controller_ports(number)
        settings = {
            "bindAddress": self.addresses.bound[name],
            "configStorePath": str(self._directory(name) / "controller.properties"),
            **self._openness(),
        }
        return Member(
            name=name, role=Role.CONTROLLER, port=ports[0], served_ports=ports,
            directory=self._directory(name), settings=settings | self._controller_settings(number),
            controller_port=ports[0],
        )  # fmt: skip

    def _controller_ports(self, number: int) -> tuple[int, int]:
        port = self.options.base_port + _FIRST_CONTROLLER + _CONTROLLER_STEP * number
        return port, port + RAFT_PORT_DELTA

    def _controller_settings(self, number: int) -> dict[str, str]:
        peers = ";".join(
            f"n{each}-{self._controller_address(each)}" for each in range(self.options.controllers)
        )
        settings = {
            "controllerDLegerGroup": _CONTROLLER_GROUP,
            "controllerDLegerPeers": peers,
            "controllerDLegerSelfId": f"n{number}",
            "controllerStorePath": str(self._directory(self._controller_name(number)) / "raft"),
        }
        return settings | (
            {"controllerRaftPassword": self.password} if self.addresses.subnet else {}
        )

    def _openness(self) -> dict[str, str]:
        """What lets members and clients of this machine in that do not come from loopback."""
        return {"allowRemoteAdmin": "true"} if self.addresses.subnet else {}

    def _controller_name(self, number: int) -> str:
        kind = "namesrv" if self.options.are_controllers_embedded else "controller"
        return f"{kind}-{number}"

    def _controller_address(self, number: int) -> str:
        host = self.addresses.announced[self._controller_name(number)]
        return f"{host}:{self._controller_ports(number)[0]}"

    def _broker(self, group: int, replica: int) -> Member:
        options, name = self.options, _broker_name(group, replica)
        number = group * options.replicas + replica
        port = options.base_port + _FIRST_BROKER + BROKER_PORT_STEP * number
        directory, host = self._directory(name), self.addresses.announced[name]
        settings = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": _group_name(group),
            **self._replication(replica),
            "listenPort": str(port),
            "haListenPort": str(port + 1),
            "bindAddress": self.addresses.bound[name],
            "brokerIP1": host,
            "brokerIP2": host,
            "namesrvAddr": ";".join(self._name_server_address(k) for k in range(options.namesrvs)),
            "storePathRootDir": str(directory / "store"),
            **self._openness(),
            **self._log_file_size(group),
            **options.settings,
        }
        if options.workers > 1:
            settings["workers"] = str(options.workers)
            del settings["haListenPort"]  # each worker has its own
        firsts = [port + WORKER_PORT_STEP * worker for worker in range(options.workers)]
        ports = tuple(first + delta for first in firsts for delta in (VIP_PORT_DELTA, 0, 1))
        return Member(
            name=name, role=Role.BROKER, port=port, served_ports=ports, directory=directory,
            group=_group_name(group), settings=settings,
        )  # fmt: skip

    def _log_file_size(self, group: int) -> dict[str, str]:
        """All members of a group need the same size, a new one that of the others."""
        options = self.options
        if options.log_file_size is None or _LOG_FILE_SIZE_KEYS & options.settings.keys():
            return {}
        names = (_broker_name(group, replica) for replica in range(options.replicas))
        found = log_file_sizes(self._directory(name) / "store" for name in names)
        return {_LOG_FILE_SIZE: str(max(found, default=options.log_file_size))}

    def _replication(self, replica: int) -> dict[str, str]:
        """Role and id of a broker, and who may replicate from it."""
        has_others = self.addresses.subnet and self.options.replicas > 1
        return self._broker_role(replica) | (
            {"haAllowedReplicas": self.addresses.subnet} if has_others else {}
        )

    def _broker_role(self, replica: int) -> dict[str, str]:
        """With controllers they decide role and id."""
        if self.options.controllers:
            addresses = (self._controller_address(k) for k in range(self.options.controllers))
            return {"enableControllerMode": "true", "controllerAddr": ";".join(addresses)}
        if replica:
            return {"brokerId": str(replica), "brokerRole": "SLAVE"}
        alone = self.options.asynchronous or self.options.replicas == 1
        return {"brokerId": "0", "brokerRole": "ASYNC_MASTER" if alone else "SYNC_MASTER"}

    def _name_server_address(self, number: int) -> str:
        host = self.addresses.announced[f"namesrv-{number}"]
        return f"{host}:{self.options.base_port + _NAMESRV_STEP * number}"

    def _directory(self, name: str) -> Path:
        return self.options.data.absolute() / name


def log_file_sizes(stores: Iterable[Path]) -> set[int]:
    """Lengths of the commit log files in some stores, and in those of workers below them."""
    return {
        size
        for store in stores
        for directory in ("commitlog", "worker-*/commitlog")
        for file in store.glob(f"{directory}/*")
        if file.name.isdigit() and (size := file.stat().st_size)  # empty: its broker was killed
    }


def _group_name(group: int) -> str:
    return f"broker-{string.ascii_lowercase[group]}"


def _broker_name(group: int, replica: int) -> str:
    return f"{_group_name(group)}-{replica}"
