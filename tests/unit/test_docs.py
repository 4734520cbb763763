"""The documentation says what is true: generated pages, version, links, commands and targets."""

import ast
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import typer
from typer.core import TyperGroup

from bolide.broker.metadata.group_attributes import GROUP_ATTRIBUTES
from bolide.broker.metadata.topic_attributes import TOPIC_ATTRIBUTES
from bolide.broker.settings.config import ALL_IGNORED, BrokerConfig
from bolide.cli import app
from bolide.config import options_of
from bolide.controller.config import ControllerConfig
from bolide.logs import AUDIT_LOGGER, CLIENT_LOGGER, LogConfig
from bolide.namesrv.config import IGNORED, IGNORED_CLIENT, NameServerConfig
from bolide.store.config import StoreConfig
from bolide.version import __version__
from docs import reference

ROOT = Path(__file__).resolve().parents[2]
OTHERS = ("README.md", "CONTRIBUTING.md", "examples/README.md")
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *(ROOT / name for name in OTHERS)])
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))

LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
ASSIGNMENTS = re.compile(r"^(\w+=\S* +)*")
NAMES = {
    "mqnamesrv": ["namesrv"],
    "mqbroker": ["broker"],
    "mqadmin": ["admin"],
    "mqshutdown": ["shutdown"],
    "bolide": [],
}
"""Programs, and what each is of `bolide`."""
SETTINGS = {"namesrv", "broker", "standalone", "admin"}
"""Commands whose words may be settings."""
NAMED_PATH = re.compile(r"`((?:src|tests|docs|benchmarks)/[\w./-]+|\w+\.(?:md|py|toml))`")
TREE_LINE = re.compile(r"((?:│   |    )*)[├└]── ([\w.]+/|[\w.]+(?:, [\w.]+)*)  +\S.*")
"""Branches, a folder or some modules, and what they are for."""
MODULES = (".py", ".pyx", ".pxd")
LOGGER = re.compile(r"getLogger\((__name__|\"bolide\.[\w.]+\")\)")
KEYS = {
    key
    for kind in (NameServerConfig, ControllerConfig, BrokerConfig, StoreConfig)
    for key in options_of(kind)
} | {"namesrvAddr"}


@pytest.mark.parametrize("path", reference.PAGES, ids=lambda path: path.name)
def test_generated_page_is_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == reference.PAGES[path](), "run `make docs`"


def test_check_names_the_stale_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    path = reference.HERE / "missing.md"
    monkeypatch.setattr(reference, "PAGES", {path: lambda: "text"})

    with pytest.raises(SystemExit, match=r"docs/missing\.md"):
        reference.main(["--check"])


def test_pages_do_not_depend_on_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("ROCKETMQ_HOME", "/opt/rocketmq")
    monkeypatch.setenv("COLUMNS", "40")

    assert reference.stale_pages() == []


def test_changelog_begins_with_this_version() -> None:
    versions = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)

    assert versions[0] == __version__


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def words_are_free(words: list[str]) -> bool:
    """Whether unknown keys are the point, or permissions such as Orders=PUB are given."""
    return "--strict" in words or "updateAclConfig" in words


@pytest.mark.parametrize("contents", ["README.md", "docs/index.md"])
def test_every_page_is_in_the_lists_of_the_documentation(contents: str) -> None:
    page = ROOT / contents
    targets = LINK.findall(page.read_text(encoding="utf-8"))
    linked = {(page.parent / target.partition("#")[0]).resolve() for target in targets}
    pages = {
        each
        for each in (ROOT / "docs").rglob("*.md")
        if each.parent.name != "decisions"  # of developers
        and not each.name.startswith("pipeline-")  # in the list of how-to/pipelines.md
        and each != ROOT / "docs" / "index.md"
    }

    assert {str(each.relative_to(ROOT)) for each in pages - linked} == set()


def test_the_layout_of_the_readme_has_every_folder() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    layout = text.partition("\n## Layout")[2].partition("\n## ")[0]
    named = set(re.findall(r"`((?:src/bolide|tests)/\w+)`", layout))
    folders = {
        f"{parent}/{each.name}"
        for parent in ("src/bolide", "tests")
        for each in (ROOT / parent).iterdir()
        if any(each.glob("**/*.py"))
    }

    assert folders - named == set()


@each_page
def test_commands_use_options_and_keys_that_exist(page: Path) -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    keys = KEYS | IGNORED.keys() | IGNORED_CLIENT.keys() | ALL_IGNORED.keys()
    for command, *words in bolide_commands(page):
        found = group.commands.get(command, group)
        rest = iter(words)
        while isinstance(found, TyperGroup) and found is not group:
            word = next(rest)
            if word.startswith("-"):
                break
            known_words = found.commands  # a pipeline may also be a file
            assert word in known_words or word.endswith(".yaml"), (command, words)
            found = known_words.get(word) or known_words["FILE"]
        known = {name for each in found.params for name in (*each.opts, *each.secondary_opts)}
        known |= {"-h", "--help"}
        for word in words:
            key, equals, _ = word.partition("=")
            if word.startswith("-") and word != "-":  # standard input
                assert key in known, (command, word)
            elif word.startswith("+"):
                assert key[1:] in {*TOPIC_ATTRIBUTES, *GROUP_ATTRIBUTES}, (command, word)
            elif equals and command in SETTINGS and not words_are_free(words):
                assert key in keys, (command, word)


def test_the_tree_of_the_architecture_is_that_of_the_source() -> None:
    text = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    tree = next(block for _, block in BLOCK.findall(text) if block.startswith("src/bolide/"))
    source = ROOT / "src" / "bolide"
    modules = {path for suffix in MODULES for path in source.rglob(f"*{suffix}")}
    there = {path.relative_to(source).as_posix() for path in modules}
    packages = {path.rpartition("/")[0] + "/" for path in there if "/" in path}

    named = list(tree_entries(tree))

    assert len(named) == len(set(named)), "a name is there twice"
    assert set(named) == {path for path in there if not path.endswith("__init__.py")} | packages


def test_the_layers_of_the_architecture_are_those_that_are_checked() -> None:
    text = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    shown = next(block for _, block in BLOCK.findall(text) if block.startswith("__main__\n"))
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]

    assert shown.splitlines() == next(each["layers"] for each in contracts if "layers" in each)


def test_the_modules_that_the_architecture_names_exist() -> None:
    text = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w/]+/\w+\.pyx?|[\w/]+/)`", text))
    roots = (ROOT / "src" / "bolide", ROOT)

    assert len(named) > 60
    assert {path for path in named if not any((root / path).exists() for root in roots)} == set()


def test_the_files_to_change_for_an_addition_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition("\n## How to add\n")[2].partition("\n## ")[0]
    named = set(NAMED_PATH.findall(section))

    assert len(named) > 20
    assert {path for path in named if not (ROOT / path).exists()} == set()


def test_the_places_that_the_glossary_names_exist() -> None:
    text = (ROOT / "docs" / "explanation" / "glossary.md").read_text(encoding="utf-8")
    places = re.findall(r"\| `([\w/.]+)` \|$", text, re.MULTILINE)

    assert 20 <= len(places) <= 40
    assert [path for path in places if not (ROOT / "src" / "bolide" / path).exists()] == []


def test_the_loggers_that_are_named_exist() -> None:
    text = (ROOT / "docs" / "how-to" / "logging.md").read_text(encoding="utf-8")
    rows = "\n".join(line for line in text.splitlines() if line.startswith("| `bolide."))
    named = set(re.findall(r"`(bolide\.[\w.]+)`", rows))

    assert named
    assert named - logger_names() == set()


@each_page
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    assert set(re.findall(r"\bmake ([a-z-]+)[`\n]", page.read_text(encoding="utf-8"))) <= targets


@each_page
def test_setting_files_have_keys_that_exist(page: Path) -> None:
    for language, block in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language == "properties":
            assert {line.partition("=")[0] for line in block.split()} <= KEYS


@each_page
def test_python_samples_compile(page: Path) -> None:
    for language, block in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            compile(block, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_the_logging_file_shown_is_a_logging_file(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "how-to" / "logging.md").read_text(encoding="utf-8")
    (block,) = [block for language, block in BLOCK.findall(text) if language == "toml"]
    file = tmp_path / "logging.toml"
    file.write_text(block, encoding="utf-8")

    shown = LogConfig.read(file)

    assert msgspec.structs.replace(shown, file=None, console=None, levels={}) == LogConfig(), (
        "the page says these are defaults"
    )
    assert shown.file and shown.levels


def tree_entries(tree: str) -> Iterator[str]:
    """The paths in a drawn tree, those of folders with a slash at the end; each line has a role."""
    folders: list[str] = []
    for line in tree.splitlines()[1:]:
        found = TREE_LINE.fullmatch(line)
        assert found is not None, line
        depth = len(found[1]) // 4
        above = "".join(folders[:depth])
        for name in found[2].split(", "):
            yield above + name
            if name.endswith("/"):
                folders[depth:] = [name]


def bolide_commands(page: Path) -> Iterator[list[str]]:
    """The words after `bolide` of each command line; `mqnamesrv` is `bolide namesrv`."""
    for language, block in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language != "sh":
            continue
        for line in block.replace("\\\n", " ").splitlines():
            program, *words = shlex.split(ASSIGNMENTS.sub("", line.strip()), comments=True) or [""]
            prefix = NAMES.get(Path(program).name)
            if prefix is not None and words:
                yield prefix + (words[: words.index("|")] if "|" in words else words)


def logger_names() -> set[str]:
    """The names of all loggers in the source, and of the packages above them."""
    names = {AUDIT_LOGGER, CLIENT_LOGGER}
    for path in (ROOT / "src" / "bolide").rglob("*.py"):
        module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        for argument in LOGGER.findall(path.read_text(encoding="utf-8")):
            name = module if argument == "__name__" else argument.strip('"')
            names |= {name.rsplit(".", dots)[0] for dots in range(name.count("."))}
    return names


def anchors(page: Path) -> set[str]:
    """The names that headings get, as mkdocs makes them."""
    headings = HEADING.findall(page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\s-]", "", text).strip().lower().replace(" ", "-") for text in headings}


@pytest.mark.parametrize("page", ["README.md", "docs/how-to/administer.md"])
def test_the_number_of_admin_commands_is_that_of_the_comparison(page: str) -> None:
    text = (ROOT / "docs" / "mqadmin-comparison.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| `")]
    absent = sum(row[4].strip() == "not applicable" for row in rows)
    words = " ".join((ROOT / page).read_text(encoding="utf-8").split())

    assert f"{len(rows)} " in words
    assert re.search(
        rf"\b{len(rows)} (command )?names\b.{{0,60}} {len(rows) - absent} work\b", words
    )
    assert re.search(rf"\b{absent}, about RocksDB|\b{absent} about RocksDB", words)
