from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.sandbox.cluster_files import SnapshotError, find_logs, read_objects
from worker.sandbox.cluster_store import Snapshot

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: shop}\n"


def _write(folder: Path, text: str, name: str = "a.yaml") -> Path:
    (folder / "cluster").mkdir(exist_ok=True)
    (folder / "cluster" / name).write_text(text)
    return folder


def test_documents_of_several_files(tmp_path: Path) -> None:
    _write(tmp_path, f"---\n{POD % 'a'}---\n{POD % 'b'}---\n")
    _write(tmp_path, POD % "c", "b.yml")
    _write(tmp_path, json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "d"}}), "c.json")
    _write(tmp_path, "not: read", "notes.txt")
    assert [o["metadata"]["name"] for o in read_objects(tmp_path)] == ["a", "b", "c", "d"]


def test_directory_with_the_objects_themselves(tmp_path: Path) -> None:
    _write(tmp_path, POD % "a")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "shop_a_app.log").write_bytes(b"text")
    assert len(read_objects(tmp_path / "cluster")) == 1
    assert find_logs(tmp_path) == find_logs(tmp_path / "cluster") != {}


def test_lists_are_taken_apart(tmp_path: Path) -> None:
    _write(tmp_path, "apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: a}\n- metadata: {name: b}\n")
    items = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Node, metadata: {name: n}}\n"
    _write(tmp_path, items, "b.yaml")
    expected = [("Pod", "a"), ("Pod", "b"), ("Node", "n")]
    assert expected == [(o["kind"], o["metadata"]["name"]) for o in read_objects(tmp_path)]


def test_values_are_what_the_api_would_send(tmp_path: Path) -> None:
    text = (
        "data: [2026-05-01T10:00:00Z, 2026-05-01, 12:30, =, 5, 0x10, 1.5, .nan, true, null, !!binary aGk=]\n"
    )
    _write(tmp_path, POD % "a" + text + "keys: {2: a, true: b, null: c}\n")
    (found,) = read_objects(tmp_path)
    expected = ["2026-05-01T10:00:00Z", "2026-05-01", "12:30", "=", 5, 16, 1.5, "nan", True, None]
    assert expected == found["data"][:-1]
    assert found["keys"] == {"2": "a", "true": "b", "null": "c"}
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize(
    "text",
    [
        "kind: Pod\nmetadata: {name: a}",
        "apiVersion: v1\nmetadata: {name: a}",
        "apiVersion: v1\nkind: Pod\nmetadata: {}",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: 5}",
        "apiVersion: v1\nkind: List\nitems: [1]",
        "- a",
        "text",
        "a: [",
        "a: *b",
        "\x00",
        "!!python/object/apply:os.getcwd []",
        "a: " + "9" * 5000,
        "a: " + "[" * 200 + "]" * 200,
    ],
)
def test_mistakes_name_the_file(tmp_path: Path, text: str) -> None:
    with pytest.raises(SnapshotError, match=r"a\.yaml"):
        read_objects(_write(tmp_path, text))


def test_mistakes_name_the_line_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError) as raised:
        read_objects(_write(tmp_path, "kind: Pod\nmetadata: {\n"))
    assert re.fullmatch(r".+a\.yaml: line 3: .+", str(raised.value))


def test_aliases_that_grow_without_end(tmp_path: Path) -> None:
    levels = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]\n" for n in range(1, 9))
    with pytest.raises(SnapshotError, match="too large"):
        read_objects(_write(tmp_path, POD % "a" + "l0: &l0 [x]\n" + levels), max_values=10_000)


def test_file_that_is_too_large(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="larger than"):
        read_objects(_write(tmp_path, POD % "a"), max_file_bytes=10)


def test_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="no such directory"):
        read_objects(tmp_path / "gone")
    with pytest.raises(SnapshotError, match=r"no \.yaml"):
        read_objects(tmp_path)


def test_log_files(tmp_path: Path) -> None:
    logs = _write(tmp_path, POD % "a") / "logs"
    assert find_logs(tmp_path) == {}
    logs.mkdir()
    current, previous = logs / "shop_a.b_app.log", logs / "shop_a.b_app.previous.log"
    current.write_bytes(b"")
    previous.write_bytes(b"")
    expected = {("shop", "a.b", "app", False): current, ("shop", "a.b", "app", True): previous}
    assert expected == find_logs(tmp_path)


@pytest.mark.parametrize("name", ["app.log", "shop_a.log", "shop_a_b_c.log", "__.log"])
def test_log_file_of_something_else(tmp_path: Path, name: str) -> None:
    logs = _write(tmp_path, POD % "a") / "logs"
    logs.mkdir()
    (logs / name).write_bytes(b"")
    assert find_logs(tmp_path) == {}


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.mktemp("any")
    (folder / "a.yaml").write_text(text, encoding="utf-8", errors="replace")
    try:
        objects = read_objects(folder)
    except SnapshotError:
        return
    Snapshot(objects)
