"""What code saw of the cluster before the model was asked."""

from __future__ import annotations

from dataclasses import dataclass

from worker.domain.values.objects import ObjectRef


@dataclass(frozen=True, slots=True)
class FirstLook:
    """What code saw before the model was asked.

    `chain`: the signal's resource and its owners, as far as they were read. `trouble`: objects among them, and pods of
    them, that were in trouble. `unread`: what could not be read.
    """

    chain: tuple[ObjectRef, ...] = ()
    trouble: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
