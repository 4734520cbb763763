"""Texts that the pages of the cluster take from operations have their Chinese ones."""

from bolide.config import Unit
from bolide.console.languages import chinese_texts
from bolide.doctor.findings import KINDS
from bolide.operations.servers.health import CheckState
from bolide.operations.servers.members import MemberRole


def test_names_of_states_and_checks_are_translated() -> None:
    kinds = (MemberRole, CheckState)
    used = {each.value for kind in kinds for each in kind}
    used |= {each.value for each in Unit} | set(KINDS.values())
    used |= {"broker", "namesrv", "controller", "console"}
    assert sorted(used - set(chinese_texts())) == []
