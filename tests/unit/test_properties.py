"""Java's properties files. The rules were checked against `java.util.Properties.load` of JDK 17."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bolide import properties

RULES = [
    ("a=1", {"a": "1"}),
    ("a:1", {"a": "1"}),
    ("a 1", {"a": "1"}),
    ("a\t1", {"a": "1"}),
    ("a = 1", {"a": "1"}),
    ("a : 1", {"a": "1"}),
    ("a", {"a": ""}),
    ("a=", {"a": ""}),
    ("=x", {"": "x"}),
    ("a==1", {"a": "=1"}),
    ("a= = 1", {"a": "= 1"}),
    ("  a=1", {"a": "1"}),
    ("\fa\f=\f1", {"a": "1"}),
    ("a=1  ", {"a": "1  "}),
    ("a=1#x", {"a": "1#x"}),
    ("a=1\vb", {"a": "1\vb"}),
    ("a=\u00a0b", {"a": "\u00a0b"}),
    # comments
    ("#a=1", {}),
    ("!a=1", {}),
    ("  # a=1", {}),
    ("# x\\\na=1", {"a": "1"}),
    # escapes
    ("a\\=b=1", {"a=b": "1"}),
    ("a\\:b=1", {"a:b": "1"}),
    ("a\\ b=1", {"a b": "1"}),
    ("\\#a=1", {"#a": "1"}),
    ("k\\tx=1", {"k\tx": "1"}),
    ("a=\\t\\n\\r\\f", {"a": "\t\n\r\f"}),
    ('a=\\q\\"', {"a": 'q"'}),
    ("a=c:\\\\dir", {"a": "c:\\dir"}),
    ("a=\\ x", {"a": " x"}),
    ("a=\\u00e9\\u4e2D", {"a": "é中"}),
    ("a=\\ud83d\\ude00", {"a": "😀"}),
    # lines
    ("a=1\rb=2", {"a": "1", "b": "2"}),
    ("a=1\r\nb=2", {"a": "1", "b": "2"}),
    ("a=1\n\n \nb=2", {"a": "1", "b": "2"}),
    ("a=1\na=2", {"a": "2"}),
    # continued lines
    ("a=x\\\n  y", {"a": "xy"}),
    ("a=x\\\r\n\ty", {"a": "xy"}),
    ("a=x \\\n y", {"a": "x y"}),
    ("a=x\\\\\nb=2", {"a": "x\\", "b": "2"}),
    ("a=x\\\\\\\ny", {"a": "x\\y"}),
    ("a=x\\\n#y", {"a": "x#y"}),
    ("a=x\\\n\nb=2", {"a": "x", "b": "2"}),
    ("a\\\n\\\nb=1", {"ab": "1"}),
    ("a\\\n=1", {"a": "1"}),
    ("a=x\\", {"a": "x"}),
    ("\\\n#c=1", {}),
]

_signs = st.sampled_from("ab=: \t\f\\#!\r\n\v\u00fc😀\ud83d\ude00\ufeffu0")
texts = st.text(_signs, max_size=25)
_key = st.text(st.characters(codec="utf-8", exclude_characters="\ufeff"), max_size=5)
changes = st.dictionaries(_key, st.text(st.characters(codec="utf-8"), max_size=10), max_size=3)


@pytest.mark.parametrize(("text", "values"), RULES)
def test_a_file_is_read_as_java_reads_it(text: str, values: dict[str, str]) -> None:
    assert properties.parse(text) == values


def test_a_byte_order_mark_is_no_part_of_the_first_key() -> None:
    assert properties.parse("\ufefflistenPort=1") == {"listenPort": "1"}


def test_half_a_surrogate_pair_becomes_a_sign_that_can_be_encoded() -> None:
    assert properties.parse("a=\\ud83dx") == {"a": "\ufffdx"}


def test_an_escape_that_java_refuses_is_taken_by_its_letters() -> None:
    assert properties.parse("a=\\u12") == {"a": "u12"}


@given(text=texts)
@settings(deadline=None)
def test_any_text_can_be_read_and_its_values_encoded(text: str) -> None:
    for key, value in properties.parse(text.encode(errors="replace").decode()).items():
        (key + value).encode()


def test_render_sorts_the_keys() -> None:
    assert properties.render({"b": 2, "a": "x"}) == "a=x\nb=2\n"


FILE = """\
# where it listens
listenPort = 9876

path = /first:\\
       /second = 2
! last
other:1
"""


def test_edit_changes_a_value_and_nothing_else() -> None:
    edited = properties.edit(FILE, {"listenPort": "1"})
    assert edited == FILE.replace("listenPort = 9876", "listenPort=1")


def test_edit_replaces_a_continued_line_whole() -> None:
    edited = properties.edit(FILE, {"path": "/one"})
    assert edited == FILE.replace("path = /first:\\\n       /second = 2", "path=/one")


def test_edit_leaves_the_second_half_of_a_line_that_looks_like_a_key() -> None:
    edited = properties.edit(FILE, {"/second": "3"})
    assert edited == FILE + "/second=3\n"


def test_edit_appends_new_keys_in_their_order() -> None:
    assert properties.edit("a=1", {"z": "26", "b": "2"}) == "a=1\nz=26\nb=2\n"


def test_edit_of_an_empty_file_writes_the_changes() -> None:
    assert properties.edit("", {"a": "1"}) == "a=1\n"


def test_edit_does_not_read_a_commented_key() -> None:
    assert properties.edit("#a=1\n", {"a": "2"}) == "#a=1\na=2\n"


def test_edit_changes_every_line_of_a_key_that_is_given_twice() -> None:
    assert properties.edit("a=1\nb=1\na=2\n", {"a": "3"}) == "a=3\nb=1\na=3\n"


def test_edit_keeps_line_ends_and_byte_order_mark() -> None:
    edited = properties.edit("\ufeffa=1\r\nb=2\r\n", {"a": "3", "c": "4"})
    assert edited == "\ufeffa=3\r\nb=2\r\nc=4\r\n"


@pytest.mark.parametrize("end", ["", "\n", "\r", "\r\n"])
def test_edit_after_a_last_line_that_goes_on_starts_a_new_one(end: str) -> None:
    edited = properties.edit("a=1\\" + end, {"b": "2"})
    assert properties.parse(edited) == {"a": "1", "b": "2"}


@given(text=texts, changed=changes)
@settings(deadline=None)
def test_an_edited_file_reads_as_the_old_values_with_the_changes(
    text: str, changed: dict[str, str]
) -> None:
    expected = properties.parse(text) | changed
    assert properties.parse(properties.edit(text, changed)) == expected


@given(text=texts)
@settings(deadline=None)
def test_an_edit_without_changes_gives_back_the_text(text: str) -> None:
    assert properties.edit(text, {}) == text


def test_a_line_continued_a_hundred_thousand_times_is_read_in_no_time() -> None:
    started = time.perf_counter()
    assert properties.parse("a\\\n" * 200_000 + "=1") == {"a" * 200_000: "1"}
    assert time.perf_counter() - started < 2
