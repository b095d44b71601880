"""The page for whoever is on call names what there is, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from schemas.analysis import HumanReviewReason
from schemas.failure import DeadLetterReason
from schemas.subjects import Lane, Subjects
from worker.app.metrics import WorkerMetrics
from worker.app.settings.groups import WorkerSettings
from worker.app.stream_watch import StreamFill
from worker.app.telemetry import STAGES

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()


def sections() -> dict[str, str]:
    parts = re.split(r"^## (.+)$", PAGE, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def table_names(section: str) -> set[str]:
    """What stands in backticks in the first column."""
    cells = re.findall(r"^\|([^|]+)\|", sections()[section], re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def served() -> dict[str, set[str]]:
    """Our metrics as a scrape names them, with their labels."""
    own = WorkerMetrics()
    own.watch_checks({"nats": lambda: ""})
    own.watch_streams(lambda: {"RCA_DLQ": StreamFill(0, 0)}, lambda: {"p0": 0}, lambda: 0)
    labels = {
        metric._name: set(metric._labelnames) for metric in vars(own).values() if hasattr(metric, "_name")
    }
    found = {}
    for family in own.registry.collect():
        asked = {label for sample in family.samples for label in sample.labels} - {"le"}
        labels.setdefault(family.name, asked)
        if family.name.startswith("rca_"):
            suffix = "_total" if family.type == "counter" else ""
            found[family.name + suffix] = labels.get(family.name, set())
    return found


def test_every_metric_is_in_the_table():
    assert set(served()) == table_names("Metrics")


def test_the_table_names_the_labels():
    rows = [row.split("|")[1:3] for row in sections()["Metrics"].splitlines() if row.startswith("| `rca_")]
    told = {
        name: set(re.findall(r"`(\w+)`", labels))
        for names, labels in rows
        for name in re.findall(r"`(\w+)`", names)
    }
    assert served() == told


def test_the_table_names_the_stages():
    row = next(
        line for line in sections()["Metrics"].splitlines() if line.startswith("| `rca_stage_seconds`")
    )
    assert {*STAGES.values(), "model"} == set(re.findall(r"`(\w+)`", row.split("|")[3]))


@pytest.mark.parametrize(
    ("section", "reasons"), [("Human review", HumanReviewReason), ("Dead letters", DeadLetterReason)]
)
def test_every_reason_has_something_to_do(section, reasons):
    assert {str(reason) for reason in reasons} == table_names(section)


def test_streams_lanes_and_settings_are_called_so():
    waiting = sections()["How much is waiting"]
    assert {Subjects("rca").requests_stream} == set(re.findall(r"RCA_REQUESTS\w*", waiting))
    assert f"`{Lane.P0}` to `{Lane.P3}`" in waiting
    named = {name.lower() for name in re.findall(r"RCA_WORKER__(\w+)", PAGE)}
    assert named <= set(WorkerSettings.model_fields)
