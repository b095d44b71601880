from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.corpus_files import CORPUS
from tests.fakes.tokens import real_tokens
from worker.domain.cluster.rendering.prune import prune
from worker.domain.values.tokens import cut_middle, estimate_tokens, fits


def renderings():
    for path in sorted(CORPUS.glob("cases/*/cluster/*.yaml")):
        for manifest in list(yaml.load_all(path.read_text(), yaml.CSafeLoader))[:4]:
            if manifest:
                yield json.dumps(prune(manifest), separators=(",", ":"), ensure_ascii=False)
    for path in sorted(CORPUS.glob("cases/*/logs/*.log")):
        yield path.read_bytes()[:20_000].decode("utf-8", "replace")


def test_estimate_is_close_to_the_tokenizer_and_never_far_below():
    ratios = [estimate_tokens(text) / real_tokens(text) for text in renderings() if real_tokens(text) > 40]
    assert len(ratios) > 150
    assert min(ratios) > 0.93
    assert max(ratios) < 1.5
    assert 1.0 < sum(ratios) / len(ratios) < 1.2


@pytest.mark.parametrize(
    ("text", "least"),
    [
        ("f3a9c0b1d2e4" * 60, 0.9),
        ("ZmFrZXNlY3JldGZha2VzZWNyZXQ+/" * 60, 0.75),
        ("容器启动失败因为内存不足" * 40, 1.0),
        ("😀🔥" * 100, 1.0),
        ("\\u{200b}" * 100, 0.9),
        ("Ошибка подключения к базе данных " * 20, 1.0),
        ("x" * 4000, 1.0),
    ],
)
def test_estimate_does_not_undercount_unusual_text_badly(text, least):
    assert estimate_tokens(text) >= least * real_tokens(text)


def test_short_text_is_not_cut():
    cut = cut_middle("Pod shop/api-0 is not ready", 100)
    assert "Pod shop/api-0 is not ready" == cut.text
    assert 0 == cut.missing


def test_cut_keeps_head_and_tail_and_counts_what_is_missing():
    text = "begin " + "middle " * 2000 + "end"
    cut = cut_middle(text, 100)
    assert cut.text.startswith("begin ")
    assert cut.text.endswith(" end")
    assert f"[{cut.missing} characters cut]" in cut.text


@given(st.text(max_size=3000), st.integers(min_value=12, max_value=400))
def test_cut_text_always_fits(text, budget):
    assert fits(cut_middle(text, budget).text, budget)
