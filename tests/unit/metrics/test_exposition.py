"""Families as text, read back by the parser of prometheus_client."""

import pytest

from bolide.distribution import Distribution
from bolide.metrics.exposition import compress, render
from bolide.metrics.families import Family, Kind, Scope
from tests.support.metrics import Scraped


def text_of(*families: Family) -> str:
    return b"".join(render(families, lambda: None)).decode()


def test_what_is_written_is_what_is_read() -> None:
    sizes = Distribution((10, 100))
    for value, count in ((5, 2), (10, 1), (11, 1), (1000, 3)):
        sizes.add(value, count)
    odd = 'a"b\\c\nd'
    scope = Scope((("cluster", "c"),), meter="broker-meter")
    text = text_of(
        Family("g_total", Kind.COUNTER, "Why \\ not\nso", [((odd,), 7)], labels=("topic",)),
        Family("h", Kind.GAUGE, "x", [((), 0.5)], unit="milliseconds", scope=scope),
        Family("sizes", Kind.HISTOGRAM, "x", [(("T",), sizes)], unit="bytes", labels=("topic",)),
        Family("i_bytes", Kind.GAUGE, "x", [(("",), 2**60)], unit="bytes", labels=("none",)),
        Family("nothing", Kind.GAUGE, "x", []),
    )
    found = Scraped(text)
    assert found.one("g_total", topic=odd) == 7
    assert found.one("h_milliseconds", cluster="c", otel_scope_name="broker-meter") == 0.5
    buckets = [found.one("sizes_bytes_bucket", le=le) for le in ("10.0", "100.0", "+Inf")]
    assert buckets == [3, 4, 7]
    assert found.one("sizes_bytes_count") == 7
    assert found.one("sizes_bytes_sum") == 3031
    assert found.one("i_bytes") == 2**60
    assert "none=" not in text  # an empty label is no label
    assert "nothing" not in text
    assert found.kinds == {
        "g": "counter", "h_milliseconds": "gauge", "sizes_bytes": "histogram", "i_bytes": "gauge"
    }  # fmt: skip


def test_a_family_has_a_limit_and_says_how_much_it_left_out() -> None:
    family = Family(
        "many", Kind.GAUGE, "x", (((str(n),), n) for n in range(100)), labels=("n",), limit=10
    )
    assert len(Scraped(text_of(family)).all("many")) == 10
    assert family.dropped == 90


def test_large_texts_come_in_pieces_and_can_be_compressed() -> None:
    import gzip

    def family() -> Family:
        return Family(
            "many", Kind.GAUGE, "x", (((f"{n:050}",), n) for n in range(5000)), labels=("n",)
        )

    pauses = []
    pieces = list(render([family()], lambda: pauses.append(1)))
    assert len(pieces) > 3
    assert len(pauses) > 100
    packed = b"".join(compress(render([family()], lambda: None)))
    assert gzip.decompress(packed) == b"".join(pieces)


@pytest.mark.parametrize(("value", "count"), [(1, 3), (0, 1)])
def test_counts_since_an_earlier_copy(value: int, count: int) -> None:
    found = Distribution((1, 2))
    found.add(5)
    before = found.copy()
    found.add(value, count)
    grown = found.since(before)
    assert grown.counts == [count, 0, 0]
    assert grown.total == value * count
    assert found.since(None).counts == [count, 0, 1]
    assert found.within((2,)).counts == [count, 1]
