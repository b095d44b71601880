"""Builds wheel and source distribution for a package index, which shows README.md but has none of the files it links to.

    python deploy/package.py https://HOST/OWNER/rca-worker [DIRECTORY]

Links become absolute, and the project gets its URLs. Files are taken as they are in the work tree; DIRECTORY is `dist`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
PARTS = ("schemas", "worker", "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE")
RELATIVE = re.compile(r"\]\((?!https?://|#)([^)\s]+)\)")
PICTURES = (".png", ".svg")
URLS = {
    "Repository": "",
    "Documentation": "/tree/main/docs",
    "Changelog": "/blob/main/CHANGELOG.md",
    "Issues": "/issues",
}


def absolute(text: str, repository: str) -> str:
    """The text with each relative link as a link into the repository."""

    def linked(found: re.Match[str]) -> str:
        view = "raw" if found[1].endswith(PICTURES) else "blob"
        return f"]({repository}/{view}/main/{found[1]})"

    return RELATIVE.sub(linked, text)


def main(repository: str, directory: str = "dist") -> None:
    """Build from a copy of the work tree."""
    repository = repository.rstrip("/")
    with tempfile.TemporaryDirectory(prefix="rca-package-") as temporary:
        copy = Path(temporary)
        for name in PARTS:
            source = TOP / name
            if source.is_dir():
                shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(source, copy / name)
        for name in ("README.md", "CHANGELOG.md"):
            (copy / name).write_text(absolute((copy / name).read_text("utf-8"), repository), "utf-8")
        urls = "".join(f'{name} = "{repository}{path}"\n' for name, path in URLS.items())
        with (copy / "pyproject.toml").open("a", encoding="utf-8") as file:
            file.write(f"\n[project.urls]\n{urls}")
        target = Path(directory).resolve()
        subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", target], cwd=copy, check=True)  # noqa: S603 - our own build


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3 or not sys.argv[1].startswith("https://"):
        sys.exit(__doc__)
    main(*sys.argv[1:])
