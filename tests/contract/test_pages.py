"""What the pages name is there: files, links, commands, settings, targets of make, examples that can be read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from schemas.analysis import Status
from schemas.audit import EventType
from schemas.evidence import ClaimSupport
from schemas.export import schema_of
from tests.contract.command_lines import find_command
from worker.adapters.file_catalog import lint
from worker.app.settings.environment import documentation
from worker.domain.investigation.toolbox.served import SERVED

TOP = Path(__file__).parents[2]
PAGES = [TOP / "README.md", TOP / "SECURITY.md", TOP / "CHANGELOG.md", *sorted((TOP / "docs").glob("*.md"))]
SETTINGS = {name for name, _, _ in documentation()}
PARTS = ("docs/", "deploy/", "worker/", "schemas/", "tests/")
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)


def code(text: str) -> Iterator[str]:
    """Everything in backticks, and the lines of code blocks."""
    rest = FENCED.sub("", text)
    yield from (line for _, block in FENCED.findall(text) for line in block.splitlines())
    yield from re.findall(r"^ {4}(\S.*)$", rest, re.MULTILINE)
    yield from (" ".join(span.split()) for span in re.findall(r"`([^`]+)`", rest))


def anchors(path: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def commands(text: str) -> Iterator[list[str]]:
    """The words after each `rca`, without what a shell makes of them."""
    for line in code(text):
        for found in re.findall(r"(?:^|(?<!-n) )rca ([a-z]+\b[^|;&#<>]*)", line):
            yield found.split()


@each_page
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCED.sub("", page.read_text())):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), target
        assert path.is_relative_to(TOP)
        assert not anchor or anchor in anchors(path), target


@each_page
def test_files_in_backticks_are_there(page):
    for span in code(page.read_text()):
        for word in span.split():
            if word.startswith(PARTS) and not set(word) & set("*<>$"):
                assert (TOP / word).exists(), word


@each_page
def test_commands_and_their_options_exist(page):
    for words in commands(page.read_text()):
        command, rest = find_command(words)
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in rest if word.startswith("--")} <= known, words


@each_page
def test_settings_exist(page):
    for name in re.findall(r"\bRCA_\w+?__\w*", page.read_text()):
        assert any(
            setting.startswith(name) if name.endswith("_") else setting == name for setting in SETTINGS
        ), name


@each_page
def test_targets_of_make_exist(page):
    targets = set(re.findall(r"^([a-z-]+):", (TOP / "Makefile").read_text(), re.MULTILINE))
    for span in code(page.read_text()):
        if span.startswith("make "):
            assert set(span.partition("#")[0].split()[1:]) <= targets, span


@each_page
def test_examples_can_be_read(page):
    readers = {"json": json.loads, "yaml": lambda text: list(yaml.safe_load_all(text))}
    for language, block in FENCED.findall(page.read_text()):
        assert language not in readers or readers[language](block)


def test_the_readme_leads_to_every_page():
    linked = set(re.findall(r"\]\((docs/\w+\.md|\w+\.md)\)", PAGES[0].read_text()))
    assert {str(page.relative_to(TOP)) for page in PAGES[1:]} <= linked


def test_the_map_of_the_code_names_what_is_there():
    [row] = re.findall(r"^\| \[worker/domain\].*$", PAGES[0].read_text(), re.MULTILINE)
    domain = TOP / "worker" / "domain"
    packages = {path.parent.name for path in domain.glob("*/__init__.py")}
    named = set(re.findall(r"`(\w+(?:\.py)?)`", row))
    assert packages == {word for word in named if not word.endswith(".py")}
    assert [] == [word for word in named if word.endswith(".py") and not (domain / word).exists()]


def _section(heading):
    return (TOP / "docs" / "consumers.md").read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def test_consumers_are_told_every_support_of_a_claim():
    assert ["support", *map(str, ClaimSupport)] == re.findall(
        r"^\| `(\w+)` \|", _section("Show why"), re.MULTILINE
    )


def test_the_fields_that_consumers_of_kubernaut_are_led_to_are_there():
    schema = schema_of("analysis-result")
    rows = re.findall(r"^\| `.*?\| (.*) \|$", _section("For consumers of Kubernaut"), re.MULTILINE)
    named = [path.split(".") for row in rows for path in re.findall(r"`([a-z_]+(?:\.[a-z_]+)*)`", row)]
    named = [path for path in named if path[0] in schema["properties"]]
    assert len(named) > 12
    for path in named:
        node = schema
        for name in path:
            node = node["properties"][name]
            node = next((form for form in node.get("anyOf", []) if "$ref" in form), node)
            if "$ref" in node:
                node = schema["$defs"][node["$ref"].rpartition("/")[2]]


def test_consumers_are_told_what_to_do_for_each_status():
    text = _section("Act")
    assert ["status", *map(str, Status)] == re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)


def test_the_audit_page_lists_every_event():
    page = (TOP / "docs" / "audit.md").read_text()
    events = page.partition("\n## Events\n")[2].partition("\n## ")[0]
    assert ["event_type", *map(str, EventType)] == re.findall(r"^\| `([\w.]+)` \|", events, re.MULTILINE)


def test_other_agents_are_told_of_every_tool():
    page = (TOP / "docs" / "mcp.md").read_text()
    assert [] == [name for name in SERVED if f"`{name}`" not in page]


def test_the_workflow_to_start_from_is_one(tmp_path):
    [example] = re.findall(r"```yaml\n(.*?)```", (TOP / "docs" / "catalog.md").read_text(), re.DOTALL)
    (tmp_path / "workflow.yaml").write_text(example)
    found = lint(tmp_path)
    assert ([], 1) == ([str(problem) for problem in found.problems], found.workflows)
