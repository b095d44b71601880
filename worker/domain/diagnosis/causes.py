"""Kinds of cause, kinds of remedy, and what a rule concludes.

A finding of basis STATE rests on fields that only Kubernetes components write, or on computations over specs.
Messages of the kubelet, the scheduler and controllers are only sorted into classes. Annotations, label
values, data of ConfigMaps, values of variables and texts of alerts may lead to an object, but are never a
reason for a finding. A finding of basis TEXT rests on what a program wrote into its log. It helps humans, and
is never a reason to act without them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

from worker.domain.values.objects import ObjectRef


class Cause(enum.StrEnum):
    """Kinds of cause: what is wrong with an object."""

    OUT_OF_MEMORY = "out_of_memory"
    CRASH_ON_START = "crash_on_start"
    IMAGE = "image"
    MISSING_CONFIGURATION = "missing_configuration"
    BAD_CONFIGURATION_CHANGE = "bad_configuration_change"
    STALE_CONFIGURATION = "stale_configuration"
    BAD_ROLLOUT = "bad_rollout"
    NOT_SCHEDULABLE = "not_schedulable"
    VOLUME = "volume"
    NODE = "node"
    EVICTION = "eviction"
    PROBE = "probe"
    NOT_READY = "not_ready"
    SERVICE = "service"
    NETWORK_POLICY = "network_policy"
    CREATION_REFUSED = "creation_refused"
    SCALED_TO_ZERO = "scaled_to_zero"
    AUTOSCALER = "autoscaler"
    DISRUPTION_BUDGET = "disruption_budget"
    JOB = "job"
    SUSPENDED = "suspended"
    STUCK_DELETION = "stuck_deletion"
    CONTROLLER = "controller"
    DEFECTIVE_START = "defective_start"
    INVALID_CONFIGURATION = "invalid_configuration"
    WRONG_ADDRESS = "wrong_address"
    VOLUME_FULL = "volume_full"
    CREDENTIALS = "credentials"
    STALE_CREDENTIALS = "stale_credentials"
    CERTIFICATE = "certificate"
    CONNECTIONS = "connections"
    PERMISSION = "permission"
    MESH_POLICY = "mesh_policy"
    SERVER_REFUSES = "server_refuses"


class Remedy(enum.StrEnum):
    """Kinds of actions, whatever the catalog calls them."""

    INCREASE_MEMORY = "increase_memory"
    INCREASE_CPU = "increase_cpu"
    ROLL_BACK = "roll_back"
    REVERT_SOURCE = "revert_source"
    RESTART = "restart"
    PATCH_CONFIGURATION = "patch_configuration"
    RESTORE_CONFIGURATION = "restore_configuration"
    FIX_IMAGE = "fix_image"
    REFRESH_PULL_SECRET = "refresh_pull_secret"  # noqa: S105 - a kind of action, not a credential
    SCALE_UP = "scale_up"
    SCALE_DOWN = "scale_down"
    EXPAND_VOLUME = "expand_volume"
    RECREATE_CLAIM = "recreate_claim"
    CLEAN_VOLUME = "clean_volume"
    CORDON = "cordon"
    UNCORDON = "uncordon"
    DRAIN = "drain"
    CLEAN_NODE = "clean_node"
    RESTART_NODE_AGENT = "restart_node_agent"
    ADD_CAPACITY = "add_capacity"
    REMOVE_TAINT = "remove_taint"
    RELAX_DISRUPTION_BUDGET = "relax_disruption_budget"
    RAISE_AUTOSCALER = "raise_autoscaler"
    FIX_NETWORK_POLICY = "fix_network_policy"
    FIX_SELECTOR = "fix_selector"
    FIX_PORT = "fix_port"
    FIX_PROBE = "fix_probe"
    RAISE_QUOTA = "raise_quota"
    RENEW_CERTIFICATE = "renew_certificate"
    EXTEND_DEADLINE = "extend_deadline"
    RESUME = "resume"
    REMOVE_FINALIZER = "remove_finalizer"
    FIX_PLACEMENT = "fix_placement"
    RELAX_POD_RULES = "relax_pod_rules"
    ROTATE_CREDENTIALS = "rotate_credentials"
    RAISE_CONNECTIONS = "raise_connections"


class Strength(enum.IntEnum):
    """DIRECT: the state names the cause. TIMED: the order of changes suggests it. SYMPTOM: it is unknown."""

    SYMPTOM = 1
    TIMED = 2
    DIRECT = 3


class Basis(enum.StrEnum):
    """The basis of a finding: fields of components, or the words of a program."""

    STATE = "state"
    TEXT = "text"


class Relation(enum.StrEnum):
    """How the structure connects two objects; LOG: only a log names the other one."""

    SAME = "same"
    OWNER = "owner"
    OWNED = "owned"
    SELECTED = "selected"
    MOUNT = "mount"
    NODE = "node"
    SERVICE = "service"
    NAMED_IN_SPEC = "named_in_spec"
    DNS = "dns"
    NAMESPACE = "namespace"
    SCALE_TARGET = "scale_target"
    WEBHOOK = "webhook"
    LOG = "log"


@dataclass(frozen=True, slots=True)
class Edge:
    """One step from an object to another one that its state may depend on."""

    relation: Relation
    to: ObjectRef


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One conclusion of a rule.

    `object` is what has to change, `also` names other objects that an answer may rightly blame instead: the
    workload that suffers, a claim behind it. `remedies` are the kinds of action whose precondition holds in
    this state. `revision` is the one to roll back to, 0 when that is not known. `signals` are signal types
    that this state corresponds to, the best first. `reads` are the objects that the conclusion rests on,
    `path` the steps from the signal's resource. `container` is the one that fails, if one does, and `taint`
    the key of the taint that keeps pods away.
    """

    cause: Cause
    object: ObjectRef
    sentence: str
    strength: Strength = Strength.DIRECT
    also: tuple[ObjectRef, ...] = ()
    remedies: frozenset[Remedy] = frozenset()
    signals: tuple[str, ...] = ()
    reads: tuple[ObjectRef, ...] = ()
    revision: int = 0
    container: str = ""
    taint: str = ""
    basis: Basis = Basis.STATE
    path: tuple[Edge, ...] = field(default=())

    @property
    def subjects(self) -> tuple[ObjectRef, ...]:
        """Every object that an answer may blame for this."""
        return (self.object, *self.also)


def stated(
    cause: Cause,
    ref: ObjectRef,
    what: str,
    remedies: Iterable[Remedy] = (),
    signals: tuple[str, ...] = (),
    also: tuple[ObjectRef, ...] = (),
    strength: Strength = Strength.DIRECT,
) -> Diagnosis:
    """A finding that rests on the state of its object alone. `what` is a sentence without its full stop."""
    told = f"{what[0].upper()}{what[1:]}."
    return Diagnosis(cause, ref, told, strength, also, frozenset(remedies), signals, (ref,))


def named(ref: ObjectRef) -> tuple[str, str, str]:
    """The identity of an object, without version and uid."""
    return ref.kind.lower(), ref.namespace, ref.name
