"""How many examples a property test tries.

The profile `ci` tries as many as the test asks for, `dev` a fifth; HYPOTHESIS_PROFILE chooses.
"""

from __future__ import annotations

from hypothesis import settings

CI_EXAMPLES = 100
DEV_EXAMPLES = 20


def examples(count: int) -> settings:
    """A decorator for tests that need another number of examples than CI_EXAMPLES."""
    return settings(max_examples=max(5, count * settings.default.max_examples // CI_EXAMPLES))
