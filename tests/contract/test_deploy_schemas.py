"""What is deployed satisfies the schemas of Kubernetes (strict: no unknown fields) and of compose files."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from tests.contract.test_deploy import COMPOSE, TOP, manifests

VERSIONS = ("1.27.0", "1.34.0")
"""The oldest that the chart supports, and a recent one."""
CUSTOM = {"PodMonitor", "PrometheusRule", "ScaledObject"}


def data_of(package: str) -> Path | None:
    """Where the files of an installed package are, without importing it."""
    found = importlib.util.find_spec(package)
    return Path(found.submodule_search_locations[0]) if found and found.submodule_search_locations else None


KUBERNETES, CHECK = data_of("kubernetes_validate"), data_of("check_jsonschema")
needs = "is not installed: pip install --no-deps --require-hashes -r tests/contract/deploy.lock"


def read(path):
    return Resource(json.loads(path.read_text()), DRAFT202012)


def problems(document, version):
    folder = KUBERNETES / "kubernetes-json-schema" / f"v{version}-local-strict"
    group, _, named = document["apiVersion"].rpartition("/")
    stem = "-".join(part for part in (document["kind"].lower(), group.partition(".")[0], named) if part)
    schema = json.loads((folder / f"{stem}.json").read_text())
    registry = Registry(retrieve=lambda name: read(folder / name.rpartition("/")[2]))
    validator = Draft202012Validator(schema, registry=registry)
    return [f"{document['kind']} {e.json_path}: {e.message}" for e in validator.iter_errors(document)]


@pytest.mark.skipif(KUBERNETES is None, reason=f"kubernetes-validate {needs}")
@pytest.mark.parametrize("version", VERSIONS)
def test_the_manifests_satisfy_the_schemas_of_kubernetes(version):
    checked = [document for document in manifests() if document["kind"] not in CUSTOM]
    assert len(checked) > 10
    assert [] == [problem for document in checked for problem in problems(document, version)]


@pytest.mark.skipif(KUBERNETES is None, reason=f"kubernetes-validate {needs}")
def test_a_field_that_does_not_exist_would_be_noticed():
    [deployment] = [document for document in manifests() if document["kind"] == "Deployment"]
    deployment["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    assert "readynessProbe" in problems(deployment, VERSIONS[-1])[0]


@pytest.mark.process
def test_compose_accepts_the_file_with_all_its_profiles():
    docker = shutil.which("docker")
    if (
        not docker
        or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode
    ):
        pytest.skip("docker compose is not installed")
    command = [docker, "compose", "--profile", "*", "config", "--quiet"]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, timeout=100, check=False)
    assert (0, "") == (done.returncode, done.stderr)


@pytest.mark.skipif(CHECK is None, reason=f"check-jsonschema {needs}")
def test_the_compose_file_satisfies_its_schema():
    schema = json.loads((CHECK / "builtin_schemas" / "vendor" / "compose-spec.json").read_text())
    validator = Draft202012Validator(schema)
    assert [] == [f"{e.json_path}: {e.message}" for e in validator.iter_errors(COMPOSE)]
    wrong = yaml.safe_load(yaml.safe_dump(COMPOSE))
    wrong["services"]["worker"]["restarts"] = "always"
    assert not validator.is_valid(wrong)
