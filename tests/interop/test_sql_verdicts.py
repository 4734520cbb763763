"""Java's filter and ours over the same expressions and properties: the same verdicts."""

import os
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from bolide.broker.filters.sql import BadExpression, compile_sql
from bolide.protocol.property_string import encode_properties
from tests.interop.bench import Bench
from tests.interop.conftest import NEWEST
from tests.interop.sql_expressions import ODD, expressions, messages


@pytest.mark.parametrize(
    ("count", "properties", "seed"),
    [(700, 60, 6), pytest.param(20_000, 200, None, marks=pytest.mark.long)],
)
def test_java_and_we_give_the_same_verdicts(
    java_bench: Bench, tmp_path: Path, count: int, properties: int, seed: int | None
) -> None:
    seed = int(os.environ.get("SQL_SEED", "0")) or seed or Random().randrange(2**32)
    random = Random(seed)
    texts = [encode_properties(each) for each in messages(random, properties)]
    asked = list(dict.fromkeys(expressions(random, count)))
    java = _java(java_bench, tmp_path / "cases", texts, asked)
    ours = [_ours(expression, texts) for expression in asked]
    differing = [
        f"{expression!r}\n  Java {theirs}\n  ours {mine}"
        for expression, theirs, mine in zip(asked, java, ours, strict=True)
        if theirs != mine
    ]
    refused = java.count("!")
    verdicts = "".join(each for each in java if each != "!")
    print(
        f"seed {seed}: {len(asked)} expressions, {refused} of them refused, over {len(texts)}"
        f" messages: {len(verdicts)} verdicts, {verdicts.count('1')} matches,"
        f" {len(differing)} expressions differ"
    )
    assert not differing, "\n".join(differing[:20])
    assert refused > len(ODD) / 5
    assert verdicts.count("1") > 1000
    assert verdicts.count("0") > 1000


def _java(bench: Bench, file: Path, texts: Sequence[str], asked: Sequence[str]) -> list[str]:
    lines = [f"P {_base64(text)}" for text in texts] + [f"E {_base64(text)}" for text in asked]
    file.write_text("\n".join(lines))
    return list(bench.client(NEWEST, "SqlVerdicts", str(file)).wait(100))


def _ours(expression: str, texts: Sequence[str]) -> str:
    try:
        compiled = compile_sql(expression)
    except BadExpression:
        return "!"
    return "".join(str(int(compiled.matches(b"\x02" + text.encode()))) for text in texts)


def _base64(text: str) -> str:
    return b64encode(text.encode()).decode()
