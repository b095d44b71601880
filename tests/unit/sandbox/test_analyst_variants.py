"""Variants of the known incidents: what must stay true of the verdict, for a sample, and the generator itself.

`python -m tests.eval_variants` scores all of them.
"""

from __future__ import annotations

import pytest

from tests.eval_variants import LEAST, evaluate, report, run, variants
from tests.variants.content import read_cases
from tests.variants.mutations import MUTATIONS

SAMPLE = 64
"""Every so manieth variant: about 40."""


@pytest.mark.slow
@pytest.mark.unmeasured
async def test_a_sample_keeps_its_verdicts() -> None:
    found = await evaluate(SAMPLE)
    assert len(found) >= 30
    assert sum(scored.kept for scored in found) >= LEAST * len(found), [
        (s.case, s.lost) for s in found if s.lost
    ]
    assert not [scored.case for scored in found if scored.ran.workflow_wrong]


@pytest.mark.slow
@pytest.mark.unmeasured
def test_there_are_enough_variants_of_every_mutation() -> None:
    counted = dict.fromkeys((m.name for m in MUTATIONS), 0)
    for content in read_cases():
        for mutation, changed in variants(content, 2):
            counted[mutation.name] += 1
            assert changed.name == content.name
    assert sum(counted.values()) >= 500
    assert min(counted.values()) >= 10, counted


async def test_variants_are_the_same_every_time() -> None:
    content = next(read_cases())
    first = {mutation.name: changed for mutation, changed in variants(content, 1)}
    assert first == {mutation.name: changed for mutation, changed in variants(content, 1)}
    assert len(first) > 10
    assert "renamed" in first


async def test_what_is_lost_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    found = await evaluate(1, ["oom-sidecar"])
    assert report(found)
    assert f"{len(found)} of {len(found)}" in capsys.readouterr().out
    content = next(c for c in read_cases() if c.name == "oom-sidecar").copy()
    content.expected["workflows"]["acceptable"] = ["rollback-deployment-v1"]
    assert (await run(content)).workflow_wrong
