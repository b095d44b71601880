from __future__ import annotations

import pytest

from worker.domain.cluster.references import selector_text, selects

LABELS = {"app": "api", "tier": "web"}


def expressions(*terms):
    return {
        "matchExpressions": [dict(zip(("key", "operator", "values"), term, strict=False)) for term in terms]
    }


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({}, True),
        (None, False),
        ("app=api", False),
        ({"matchLabels": {"app": "api"}}, True),
        ({"matchLabels": {"app": "api", "tier": "db"}}, False),
        (expressions(("app", "In", ["api", "web"])), True),
        (expressions(("app", "In", ["web"])), False),
        (expressions(("other", "In", ["web"])), False),
        (expressions(("app", "NotIn", ["web"])), True),
        (expressions(("other", "NotIn", ["web"])), True),
        (expressions(("app", "NotIn", ["api"])), False),
        (expressions(("app", "Exists")), True),
        (expressions(("other", "Exists")), False),
        (expressions(("other", "DoesNotExist")), True),
        (expressions(("app", "DoesNotExist")), False),
        (expressions(("app", "Like", ["a*"])), False),
        ({"matchLabels": {"app": "api"}, **expressions(("tier", "In", ["db"]))}, False),
    ],
)
def test_a_selector_selects_as_the_api_does(selector, expected):
    assert expected is selects(selector, LABELS)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({"matchLabels": {"app": "api"}}, "app=api"),
        ({"app": "api", "tier": "web"}, "app=api,tier=web"),
        (
            {"matchLabels": {"a": "b"}, **expressions(("app", "In", ["x", "y"]), ("z", "DoesNotExist"))},
            "a=b,app in (x,y),!z",
        ),
        ({}, ""),
        (None, ""),
    ],
)
def test_a_selector_is_written_as_list_calls_take_it(selector, expected):
    assert expected == selector_text(selector)
