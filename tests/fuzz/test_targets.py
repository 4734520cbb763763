"""Every fuzz target with mutations of valid encodings, and with the inputs that once failed."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import BY_NAME, TARGETS, Target

REGRESSIONS = Path(__file__).with_name("regressions")
BYTES = [0, 1, 2, 0x22, 0x30, 0x5C, 0x7B, 0x7F, 0x80, 0xFF]
NUMBERS = [
    number.to_bytes(size, signed=True)
    for size in (2, 4, 8)
    for number in (-1, 0, 1, 2 ** (8 * size - 1) - 1, -(2 ** (8 * size - 1)))
]


@st.composite
def mutated(draw: st.DrawFn, seeds: list[bytes]) -> bytes:
    """A seed with a few pieces overwritten, inserted, removed, repeated or taken from another."""
    data = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(0, 4))):
        begin = draw(st.integers(0, len(data)))
        end = min(begin + draw(st.sampled_from([0, 1, 1, 2, 4, 8, 40])), len(data))
        new = draw(
            st.sampled_from(BYTES).map(lambda byte: bytes([byte]))
            | st.sampled_from(NUMBERS)
            | st.binary(max_size=8)
            | st.just(bytes(data[begin:end]) * 2)
            | st.just(b"")
            | st.just(draw(st.sampled_from(seeds))[begin : begin + 20])
        )
        data[begin:end] = new
    return bytes(data)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_nothing_but_a_refusal_comes_of_bad_input(target: Target) -> None:
    seeds = list(target.seeds())

    @settings(max_examples=target.examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(data=mutated(seeds) | st.binary(max_size=200))
    def fuzz(data: bytes) -> None:
        target(data)

    fuzz()


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_seeds_are_valid(target: Target) -> None:
    """Mutations of inputs that are refused at once would test nothing."""
    accepted = 0
    for seed in target.seeds():
        try:
            target.run(seed)
        except target.allowed:
            continue
        accepted += 1
    assert accepted


@pytest.mark.parametrize(
    "path", sorted(REGRESSIONS.glob("*/*")), ids=lambda path: f"{path.parent.name}-{path.name}"
)
def test_what_failed_once_does_not_fail_again(path: Path) -> None:
    target = BY_NAME.get(path.parent.name)
    if target is None:
        pytest.skip("needs the compiled kernel")
    target(path.read_bytes())
