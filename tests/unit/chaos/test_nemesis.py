"""Nemeses strike members by chance that a seed repeats, and undo what they did."""

import random

import pytest

from bolide.chaos.nemesis import NEMESES, SEVERAL, chosen_nemeses, plan_strike
from bolide.errors import ConfigError
from tests.support.aio import on_loop
from tests.unit.chaos.fake_target import FakeTarget


@pytest.mark.parametrize(
    ("name", "done"),
    [
        ("kill", ["kill {}", "start {}"]),
        ("restart", ["stop {}", "start {}"]),
        ("pause", ["pause {}", "resume {}"]),
        ("cut", ["cut {} from all both", "heal {}"]),
        ("cut-in", ["cut {} from all in", "heal {}"]),
        ("cut-out", ["cut {} from all out", "heal {}"]),
        ("cut-members", ["cut {} from 5 both", "heal {}"]),
        ("slow-link", ["slow {} 0.2 65536", "heal {}"]),
        ("full-disk", ["inject {} True", "inject {} False"]),
        ("fsync-fails", ["inject {} True", "inject {} False"]),
        ("fsync-slow", ["inject {} True", "inject {} False"]),
        ("clock-shift", ["inject {} True", "inject {} False"]),
    ],
)
def test_a_nemesis_strikes_and_undoes(name: str, done: list[str]) -> None:
    @on_loop
    async def strike_once() -> None:
        target, chance = FakeTarget(), random.Random(1)
        strike = plan_strike(name, target, chance)
        async with strike.on(target, chance):
            assert target.done == [done[0].format(*strike.targets)]

        assert target.done == [each.format(*strike.targets) for each in done]

    strike_once()


@on_loop
async def test_all_brokers_are_killed_at_once() -> None:
    target, chance = FakeTarget(), random.Random(1)
    strike = plan_strike("kill-all", target, chance)

    async with strike.on(target, chance):
        assert sorted(target.done) == [f"kill {each}" for each in target.members("broker")]

    assert len(strike.targets) == 4
    assert sum(each.startswith("start") for each in target.done) == 4


@on_loop
async def test_parts_that_began_are_undone_if_another_cannot_begin() -> None:
    class Stubborn(FakeTarget):
        async def kill(self, member: str) -> None:
            if member == "broker-b-0":
                raise ConfigError("it cannot be killed")
            await super().kill(member)

    target, chance = Stubborn(), random.Random(1)
    strike = plan_strike("kill-all", target, chance)
    with pytest.raises(ConfigError):
        async with strike.on(target, chance):
            pass

    killed = {each.removeprefix("kill ") for each in target.done if each.startswith("kill")}
    assert len(killed) == 3
    assert {f"start {each}" for each in killed} <= set(target.done)


def test_several_nemeses_strike_different_members() -> None:
    target, chance = FakeTarget(), random.Random(7)
    for _ in range(50):
        strike = plan_strike(SEVERAL, target, chance)

        assert 2 <= len(strike.parts) <= 3
        assert len(strike.targets) == len(strike.parts)
        assert strike.name == "+".join(nemesis.name for nemesis, _ in strike.parts)


def test_the_same_seed_chooses_the_same_targets() -> None:
    def targets(seed: int) -> list[tuple[str, ...]]:
        chance = random.Random(seed)
        return [plan_strike("kill", FakeTarget(), chance).targets for _ in range(20)]

    assert targets(3) == targets(3)
    assert targets(3) != targets(4)


def test_by_default_a_run_has_all_nemeses_that_fit() -> None:
    every = chosen_nemeses([], FakeTarget())
    few = chosen_nemeses([], FakeTarget(can_cut=False, can_inject=False))

    assert set(every) == {*NEMESES, SEVERAL} - {"kill-controller"}  # there are none
    assert set(few) == {"kill", "kill-all", "kill-namesrv", "restart", "pause", SEVERAL}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("flood", "must be one of kill, "),
        ("kill-controller", "no process of its own"),
        ("cut", "take --network"),
        ("full-disk", "nothing can be injected"),
    ],
)
def test_an_impossible_nemesis_is_refused(name: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=f"--nemesis {name}: .*{reason}"):
        chosen_nemeses([name], FakeTarget(can_cut=False, can_inject=False))
