"""What a package index shows of the distribution leads somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
REPOSITORY = "https://git.example.com/team/rca-worker"
SCRIPT = TOP / "deploy" / "package.py"

pytestmark = pytest.mark.process


def test_links_are_absolute_and_the_project_has_urls(tmp_path):
    command = [sys.executable, SCRIPT, f"{REPOSITORY}/", tmp_path]
    subprocess.run(command, check=True, capture_output=True, timeout=100)
    [wheel] = tmp_path.glob("*.whl")
    assert [f"{wheel.name.partition('-py3')[0]}.tar.gz"] == [path.name for path in tmp_path.glob("*.tar.gz")]
    with zipfile.ZipFile(wheel) as packed:
        [name] = [name for name in packed.namelist() if name.endswith("/METADATA")]
        metadata = message_from_string(packed.read(name).decode())
    links = re.findall(r"\]\(([^)\s]+)\)", metadata.get_payload())
    files = [
        link.removeprefix(f"{REPOSITORY}/").split("/", 2) for link in links if link.startswith(REPOSITORY)
    ]
    assert len(files) > 20
    assert all(link.startswith(("https://", "http://", "#")) for link in links)
    assert all((TOP / path.partition("#")[0]).exists() and branch == "main" for _, branch, path in files)
    assert {"raw"} == {view for view, _, path in files if path.endswith((".svg", ".png"))}
    urls = dict(line.split(", ") for line in metadata.get_all("Project-URL"))
    assert REPOSITORY == urls["Repository"]
    assert urls["Changelog"].startswith(REPOSITORY)


@pytest.mark.parametrize("arguments", [[], ["git.example.com/x"], [REPOSITORY, "a", "b"]])
def test_wrong_arguments_print_the_usage(arguments):
    done = subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, check=False)
    assert 1 == done.returncode
    assert "python deploy/package.py https://" in done.stderr
