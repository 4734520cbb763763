"""YAML as nodes: what is read, what is refused, and at which line."""

import pytest

from bolide.auth.plain.yaml_nodes import MAX_SIZE, BadAclFile, Node, read_nodes


def root(text: str) -> Node:
    return read_nodes(text.encode(), "f.yml")


def value(text: str) -> Node:
    """The value of a mapping's only key."""
    return root(f"key: {text}").as_mapping("f")["key"]


def refused(text: str | bytes, reason: str) -> None:
    data = text.encode() if isinstance(text, str) else text
    with pytest.raises(BadAclFile, match=reason):
        read_nodes(data, "f.yml")


def test_nodes_know_their_lines() -> None:
    found = root("a:\n- 1\n- b: two\n").as_mapping("the file")["a"].as_list("a")
    assert [(each.line, each.tag) for each in found] == [(2, "int"), (3, "map")]
    assert found[1].as_mapping("an item")["b"].as_text("b") == "two"
    assert str(found[1].error("is wrong")) == "f.yml:3: is wrong"


@pytest.mark.parametrize("text", ["", "# nothing\n", "~", "---\n"])
def test_an_empty_file_is_nothing(text: str) -> None:
    found = root(text)
    assert found.is_empty
    assert found.as_mapping("f") == {}
    assert found.as_list("f") == []


@pytest.mark.parametrize(
    ("text", "expected"), [("abc", "abc"), ("12345678", "12345678"), ("'0123'", "0123"), ("''", "")]
)
def test_texts_and_plain_numbers_are_texts(text: str, expected: str) -> None:
    assert value(text).as_text("key") == expected


@pytest.mark.parametrize(
    ("text", "tag"),
    [("0123", "int"), ("1_000", "int"), ("0x1F", "int"), ("1.5", "float"), ("yes", "bool"),
     ("~", "null"), ("2024-01-01", "timestamp")],
)  # fmt: skip
def test_what_java_would_rewrite_is_no_text(text: str, tag: str) -> None:
    with pytest.raises(BadAclFile, match=f"f.yml:1: key is read as {tag}: put it in quotes"):
        value(text).as_text("key")


@pytest.mark.parametrize("text", ["true", "True", "yes", "on", "'true'", "1"])
def test_true_in_all_spellings(text: str) -> None:
    assert value(text).as_bool("key")


@pytest.mark.parametrize("text", ["false", "no", "off", "'FALSE'", "0", "", "''"])
def test_false_in_all_spellings(text: str) -> None:
    assert not value(text).as_bool("key")


@pytest.mark.parametrize("text", ["2", "maybe", "'yes'", "[true]", "{a: true}"])
def test_what_is_neither_true_nor_false_is_refused(text: str) -> None:
    with pytest.raises(BadAclFile, match="key must be true or false"):
        value(text).as_bool("key")


def test_whole_numbers() -> None:
    assert value("5").as_number("key") == 5
    assert value("'-5'").as_number("key") == -5
    for text in ("1.5", "x", "''", "[1]", "1" * 19, "'-'", "'5-'"):
        with pytest.raises(BadAclFile, match="key must be a whole number"):
            value(text).as_number("key")


def test_a_number_has_one_sign() -> None:
    with pytest.raises(BadAclFile, match="key must be a whole number"):
        value("--5").as_number("key")


def test_lists_and_mappings_are_not_confused() -> None:
    with pytest.raises(BadAclFile, match="key must be a list"):
        value("{a: b}").as_list("key")
    with pytest.raises(BadAclFile, match="key must be a mapping"):
        value("[a]").as_mapping("key")
    with pytest.raises(BadAclFile, match="key must be a text"):
        value("[a]").as_text("key")


def test_a_key_that_occurs_twice_is_refused_however_it_is_spelled() -> None:
    found = root("Key: 1\nother: 2\nkey: 3\n")
    assert list(found.as_mapping("f")) == ["Key", "other", "key"]
    with pytest.raises(BadAclFile, match=r"f\.yml:3: key occurs twice in f"):
        found.as_mapping("f", str.lower)


def test_nothing_in_a_file_makes_objects_or_a_small_one_huge() -> None:
    refused("a: !!python/object/apply:os.system [ls]", "f.yml:1: the tag .* is not supported")
    refused("a: !custom x", "the tag !custom is not supported")
    refused("a: &x [1]\nb: *x", "f.yml:2: aliases are not supported")
    refused("[" * 9 + "]" * 9, "no list or mapping is nested as deeply")
    refused("[" * 100_000, "no list or mapping is nested as deeply")
    refused("a: 1\n---\nb: 2\n", "f.yml:2: a file has one document, this is the second")
    refused(b" " * (MAX_SIZE + 1), f"{MAX_SIZE + 1} bytes are over the limit")


def test_what_is_not_yaml_is_refused_without_quoting_it() -> None:
    refused("a: [hidden", "f.yml:2: did not find expected")
    refused(b"\xff\xfe\xff", "f.yml")
    with pytest.raises(BadAclFile) as refusal:
        root("accounts:\n- secretKey: 'hidden\n")
    assert "hidden" not in str(refusal.value)
    assert refusal.value.__cause__ is None
