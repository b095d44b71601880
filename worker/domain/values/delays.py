"""Delays that are not settings, in seconds, each with its reason. Those of one vendor are in its adapter."""

from __future__ import annotations

from typing import Final

# --- calls to the broker

BROKER_PATIENCE_SECONDS: Final = 30.0
"""How long one call to JetStream is retried: an election after the death of a leader takes 4 to 9 s."""
LOOKUP_PATIENCE_SECONDS: Final = 10.0
"""The same for a look-up whose caller handles failure itself: a command, or the search for an earlier result.
"""
HISTORY_PATIENCE_SECONDS: Final = 3.0
"""The same for calls that help an analysis but are not needed for it."""
HISTORY_WRITE_SECONDS: Final = 10.0
"""How long a result may wait until the history has it, behind other results of the same resource."""
CLAIM_SECONDS: Final = 1.0
"""A claim that took longer than this allows no paid call.

The time includes the events that are published before the call. A worker that was frozen meanwhile may have
been replaced.
"""
SETTLE_PATIENCE_SECONDS: Final = 30.0
"""How long an ack is retried; after that, the message is redelivered, and its result is found."""

# --- messages that go back to the queue

REDELIVERY_FIRST_SECONDS: Final = 5.0
REDELIVERY_CAP_SECONDS: Final = 300.0
"""The longest delay of a message whose outcome the broker could not store.

The delay doubles up to this, so that the server's limit of 50 deliveries outlasts a long outage.
"""
NOT_NOW_SECONDS: Final = 1.0
"""For a message that this process may not run at the moment: another one may take it at once."""
HELD_CHECK_SECONDS: Final = 2.0
"""How often a message that a worker holds is checked for a cancellation or its deadline."""
UNDECIDED_SECONDS: Final = 60.0
"""For a message whose handler raised: this is a bug, and must not spin."""
ADVISORY_RETRY_SECONDS: Final = 30.0
"""For an advisory about an exhausted request whose dead letter could not be stored."""

RELEASE_PAUSE_SECONDS: Final = 1.0
"""Between two tries to record that a run was released."""
LAST_WORDS_SECONDS: Final = (8.0, 2.0)
"""Limits for cancelled runs after the drain: to record their release, then to end after a second
cancellation.

The broker may come back during the first. Together with the drain, both must fit into the grace period of the
pod.
"""
RECONNECT_GRACE_SECONDS: Final = 5.0
"""After a reconnect, no worker pulls for this long, and all send heartbeats at once.

A message whose ack_wait passed while the broker was away then stays with the process that runs it, which is
alive. Clients reconnect within 2 s.
"""

# --- models

RATE_LIMIT_FLOOR_SECONDS: Final = 5.0
"""Least pause after a rate limit that names none."""
LONGEST_RETRY_AFTER_SECONDS: Final = 300.0
"""The longest Retry-After that is believed: a server that names a date or a wrong unit is asked again."""
PROBE_GROWTH: Final = 1.1
LONGEST_PROBE: Final = 5.0
"""The pauses between probes of a model that refuses every call grow up to five times the first one.

Each probe adds steps to the journal of its request, which the next probe reads, so there must be few over a
weekend.
"""

OUTAGE_SILENCE_SECONDS: Final = 12.0
"""Models that keep failing, without an answer for this long, are down: under load, some call always succeeds.
"""
SILENCE_SECONDS: Final = 10.0
"""Readiness mentions calls that wait longer without any answer.

The worker stays ready, because a slow model may need this long.
"""
PROBE_OUTAGE_SECONDS: Final = 2.0
"""First pause between two probes of a model that is down; it doubles up to the pause for a model that refuses
every call.
"""

# --- suspects

SUSPECTS_WAIT_SECONDS: Final = 30.0
"""How long urgent requests take precedence over suspects; then one suspect makes one call."""
SUSPECT_HOLD_SECONDS: Final = 600.0
"""How long a suspect waits for its turn beyond that before its message goes back: running analyses take their
time.
"""

DEATH_PAUSES_SECONDS: Final = (30.0, 120.0)
"""After the first and after each further death in isolation: how long a request waits before it runs again.

A wave of deaths from outside (a lost node, a neighbour that uses up the memory) is over by then.
"""

# --- watching

PROBE_SILENCE_SECONDS: Final = 8.0
"""A lane whose pull requests were not answered for this long has lost its server or its consumer: pulls
expire after 3 s.
"""
STARTUP_LOOK_SECONDS: Final = 2.0
"""Between two looks at what a worker waits for before it starts."""
STARTUP_REPORT_SECONDS: Final = 5.0
"""Between two log lines about it."""
WATCH_SECONDS: Final = 5.0
"""Between two looks at cluster, catalog and streams: a fault must be visible in readiness within 15 s."""
FILES_LOOK_SECONDS: Final = 1.0
"""Between two looks at the number of open files: a burst takes its connections at once."""
CLOCK_SKEW_SECONDS: Final = 5.0
"""Clocks that differ by more are reported; a clock that may be wrong by more lets no request expire."""
FAULT_MEMORY_SECONDS: Final = 60.0
"""How long a stream that refused a call is reported if it is not called again."""
SWEEP_SECONDS: Final = 10.0
"""Between two sweeps of the queue for stranded requests."""
