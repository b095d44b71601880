"""`rca spec-hash`: what it prints for manifests as kubectl writes them."""

from __future__ import annotations

import json

import pytest
import yaml

from schemas.export import V1
from tests.commands import rca

VECTORS = json.loads((V1 / "samples" / "spec-hashes.json").read_bytes())
VECTOR = next(vector for vector in VECTORS if vector["config_maps"])
WITH_CONFIG, HASH = VECTOR["manifest"], VECTOR["spec_hash"]
[WITHOUT] = [v["spec_hash"] for v in VECTORS if v["manifest"] == WITH_CONFIG and not v["config_maps"]]
SETTINGS = {"apiVersion": "v1", "metadata": {"name": "settings"}, **VECTOR["config_maps"]["settings"]}
LIST = {"apiVersion": "v1", "kind": "List", "items": [WITH_CONFIG, SETTINGS]}


@pytest.mark.parametrize("text", [yaml.safe_dump(LIST), yaml.safe_dump_all([WITH_CONFIG, SETTINGS])])
async def test_a_resource_is_hashed_with_its_config_maps(tmp_path, text):
    path = tmp_path / "checkout.yaml"
    path.write_text(text)
    ended = await rca("spec-hash", str(path))
    assert (0, f"{HASH}\n", "") == (ended.code, ended.out, ended.err)


async def test_a_config_map_that_is_missing_is_named_and_counts_as_absent(tmp_path):
    path = tmp_path / "checkout.yaml"
    path.write_text(yaml.safe_dump(WITH_CONFIG))
    ended = await rca("spec-hash", str(path))
    assert (0, f"{WITHOUT}\n") == (ended.code, ended.out)
    assert "settings" in ended.err
    found = (await rca("spec-hash", str(path), "--json")).json()
    assert {
        "kind": "Deployment", "name": "web", "spec_hash": WITHOUT, "absent_config_maps": ["settings"],
    } == found  # fmt: skip


@pytest.mark.parametrize("text", ["", "- a\n", "kind: Deployment\n", "a: [", None])
async def test_what_is_no_manifest_is_named(tmp_path, text):
    path = tmp_path / "checkout.yaml"
    if text is not None:
        path.write_text(text)
    ended = await rca("spec-hash", str(path))
    assert (1, "") == (ended.code, ended.out)
    assert str(path) in ended.err


@pytest.mark.process
async def test_standard_input_is_read():
    from tests.processes import rca as process

    ended = await process("spec-hash", "-", stdin=yaml.safe_dump(LIST).encode())
    assert (0, f"{HASH}\n") == (ended.code, ended.out), ended.err
