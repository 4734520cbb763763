"""The role that the settings give a broker."""

import pytest

from bolide.broker.replicas.role import Role, RoleKind, configured_role
from bolide.broker.settings.config import BrokerConfig, BrokerRole


@pytest.mark.parametrize("kind", [BrokerRole.ASYNC_MASTER, BrokerRole.SYNC_MASTER])
def test_a_master_has_id_0_for_name_servers(kind: BrokerRole) -> None:
    role = configured_role(BrokerConfig(broker_role=kind))
    assert role.is_master
    assert role.broker_id == 0
    assert not role.is_elected
    assert str(role) == "master"


def test_a_slave_has_its_own_id() -> None:
    role = configured_role(BrokerConfig(broker_role=BrokerRole.SLAVE, broker_id=3))
    assert not role.is_master
    assert role.broker_id == 3
    assert str(role) == "slave"


def test_in_controller_mode_everybody_begins_as_a_slave() -> None:
    config = BrokerConfig(enable_controller_mode=True, controller_addr=("c:1",))
    role = configured_role(config, member_id=2)
    assert role.kind is RoleKind.SLAVE
    assert role.is_elected
    assert role.member_id == role.broker_id == 2


def test_an_elected_role_names_its_epoch() -> None:
    role = Role(kind=RoleKind.MASTER, broker_id=0, is_elected=True, member_id=2, epoch=7)
    assert str(role) == "master in epoch 7"
