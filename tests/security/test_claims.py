"""Answers about incidents that somebody has thought through: what rules confirm, and what passes without a human."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.rego import PATIENT
from tests.gate.claims import INCIDENTS, read_incident
from tests.gate.run import Scene, judge, lenient_catalog
from worker.adapters.rego_policy import RegorusPolicy, read_files

pytestmark = [pytest.mark.slow, pytest.mark.unmeasured, pytest.mark.timeout(300)]
CATALOG = lenient_catalog()


@pytest.mark.parametrize("folder", INCIDENTS, ids=lambda folder: folder.name)
async def test_only_right_answers_are_confirmed(folder: Path) -> None:
    incident = read_incident(folder)
    async with RegorusPolicy(read_files, PATIENT) as policy:
        for claimed in (*incident.right, *incident.wrong):
            judged = await judge(Scene.of(incident.case), claimed, "staging", CATALOG, policy)
            assert judged.confirmed is (claimed.kind == "right"), (claimed, judged.result.corroboration)
            assert claimed.kind == "right" or not judged.passed, claimed
