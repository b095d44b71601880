"""Copies of the example incident in which something else is wrong: when the files change, the answer has to change.

Request, names and times stay the same; only what the cluster shows is another story.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from worker.domain.values.objects import ObjectRef

EXAMPLE = Path(str(files("worker"))) / "examples" / "incident"
NAMESPACE = "bazaar"
CACHE_HASH, CACHE_SUFFIX = "7c9d6fb54", "n4tvx"  # the revision before the limit was lowered, and its pod
CACHE_POD = f"basket-cache-{CACHE_HASH}-{CACHE_SUFFIX}"
NIGHT = "2026-03-17T"

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Variant:
    """A case directory and what an answer to it must say.

    `affected` are the resources that may be named, the best one first. Each of `words` occurs in the answer, ignoring
    case. `workflows` of the example catalog would help.
    """

    directory: Path
    affected: tuple[ObjectRef, ...]
    signal_types: tuple[str, ...]
    words: tuple[str, ...]
    workflows: tuple[str, ...]


def unchanged(directory: Path) -> Variant:
    """The example as it is shipped: the cache of checkout is killed since a rollout lowered its memory limit."""
    _copy(directory)
    return Variant(
        directory,
        affected=(_ref("Deployment", "basket-cache"),),
        signal_types=("CrashLoopBackOff", "OOMKilled"),
        words=("basket-cache", "OOMKilled", "256Mi", "640Mi"),
        workflows=("raise-memory-limit", "undo-rollout"),
    )


def unpullable_image(directory: Path) -> Variant:
    """The cache is well; checkout itself was released with an image tag that the registry does not have."""
    _copy(directory)
    _edit(directory, "basket-cache.yaml", _cache_before_the_rollout)
    _edit(directory, "checkout.yaml", _checkout_without_image)
    _edit(directory, "events.yaml", _only_about("gift-preview"))
    for name, uid in _checkout_pods(directory):
        _add_event(directory, "BackOff", f'Back-off pulling image "{BAD_IMAGE}"', name, uid, 96)
        _add_event(directory, "Failed", f'Failed to pull image "{BAD_IMAGE}": {NOT_FOUND}', name, uid, 9)
    _clear_logs(directory, "checkout", "basket-cache")
    return Variant(
        directory,
        affected=(_ref("Deployment", "checkout"),),
        signal_types=("ImagePullBackOff",),
        words=("checkout", "5.14.3"),
        workflows=("undo-rollout", "correct-image-tag"),
    )


def broken_configuration(directory: Path) -> Variant:
    """Nobody touched the memory limit; somebody edited the configuration of the cache, and it refuses to start."""
    _copy(directory)
    _edit(directory, "basket-cache.yaml", _cache_with_a_slip)
    _edit(directory, "events.yaml", _only_about("gift-preview", "checkout"))
    uid = _find(directory, "basket-cache.yaml", "Pod")["metadata"]["uid"]
    message = f"Back-off restarting failed container cache in pod {CACHE_POD}_{NAMESPACE}({uid})"
    _add_event(directory, "BackOff", message, CACHE_POD, uid, 107)
    _clear_logs(directory, "basket-cache")
    (directory / "logs" / f"{NAMESPACE}_{CACHE_POD}_cache.previous.log").write_text(REFUSED)
    return Variant(
        directory,
        affected=(_ref("ConfigMap", "basket-cache-config"), _ref("Deployment", "basket-cache")),
        signal_types=("CrashLoopBackOff",),
        words=("basket-cache-config", "max-memory"),
        workflows=("restore-config",),
    )


VARIANTS: tuple[Callable[[Path], Variant], ...] = (unchanged, unpullable_image, broken_configuration)
"""Every story, the shipped one first. Each writes into a directory that does not exist yet."""

BAD_IMAGE = "registry.example.com/bazaar/checkout:5.14.3"
NOT_FOUND = (
    f'rpc error: code = NotFound desc = failed to pull and unpack image "{BAD_IMAGE}": '
    f'failed to resolve reference "{BAD_IMAGE}": {BAD_IMAGE}: not found'
)
REFUSED = f"""\
{NIGHT}03:07:31Z level=info msg="basket-cache 2.8.0 starting" config=/etc/basket-cache/cache.conf
{NIGHT}03:07:31Z level=error msg="configuration refused" file=/etc/basket-cache/cache.conf line=3 err="max-memory: '420mbb' is not a valid size"
"""


# -- the stories, object by object; None leaves an object out


def _cache_before_the_rollout(manifest: Manifest) -> Manifest | None:
    """Revision 6 with its higher limit is the present one, and its pod has been running since January."""
    name = manifest["metadata"]["name"]
    change = {
        "Deployment": _revision_six,
        "ReplicaSet": _active_set if name.endswith(CACHE_HASH) else _left_out,
        "Pod": _healthy_cache_pod,
        "Endpoints": _with_ready_address,
    }.get(manifest["kind"])
    return change(manifest) if change else manifest


def _left_out(_: Manifest) -> None:
    return None


def _revision_six(deployment: Manifest) -> Manifest:
    metadata = deployment["metadata"]
    metadata["annotations"] = {"deployment.kubernetes.io/revision": "6"}
    metadata.pop("managedFields")
    _give_memory(deployment["spec"]["template"]["spec"])
    deployment["status"] = {
        "observedGeneration": metadata["generation"],
        **dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), 1),
        "conditions": [{"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable"}],
    }
    return deployment


def _active_set(replica_set: Manifest) -> Manifest:
    replica_set["spec"]["replicas"] = 1
    replica_set["status"] |= dict.fromkeys(("replicas", "readyReplicas", "availableReplicas"), 1)
    return replica_set


def _healthy_cache_pod(pod: Manifest) -> Manifest:
    _rename_cache_pod(pod)
    since = "2026-01-28T13:05:52Z"
    for condition in pod["status"]["conditions"]:
        condition |= {"status": "True", "lastTransitionTime": since}
        condition.pop("reason", None)
        condition.pop("message", None)
    pod["status"]["containerStatuses"][0] |= {
        "ready": True,
        "started": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": since}},
        "lastState": {},
    }
    return pod


def _rename_cache_pod(pod: Manifest) -> None:
    metadata = pod["metadata"]
    replica_set = _find(EXAMPLE, "basket-cache.yaml", "ReplicaSet", f"basket-cache-{CACHE_HASH}")["metadata"]
    metadata |= {"name": CACHE_POD, "generateName": f"{replica_set['name']}-"}
    metadata["creationTimestamp"] = pod["status"]["startTime"] = "2026-01-28T13:05:41Z"
    metadata["labels"]["pod-template-hash"] = CACHE_HASH
    metadata["ownerReferences"][0] |= {"name": replica_set["name"], "uid": replica_set["uid"]}
    _give_memory(pod["spec"])


def _give_memory(pod_spec: Manifest) -> None:
    old = _find(EXAMPLE, "basket-cache.yaml", "ReplicaSet", f"basket-cache-{CACHE_HASH}")
    pod_spec["containers"][0]["resources"] = copy.deepcopy(
        old["spec"]["template"]["spec"]["containers"][0]["resources"]
    )


def _with_ready_address(endpoints: Manifest) -> Manifest:
    subset = endpoints["subsets"][0]
    subset["addresses"] = subset.pop("notReadyAddresses")
    subset["addresses"][0]["targetRef"]["name"] = CACHE_POD
    return endpoints


def _cache_with_a_slip(manifest: Manifest) -> Manifest | None:
    """Revision 6 as well, but a word in the ConfigMap is wrong since 02:46 and the container keeps ending."""
    if manifest["kind"] == "ConfigMap":
        manifest["data"]["cache.conf"] = manifest["data"]["cache.conf"].replace("420mb", "420mbb")
        manifest["metadata"]["managedFields"][0] |= {"manager": "kubectl-edit", "time": f"{NIGHT}02:46:11Z"}
        return manifest
    if manifest["kind"] == "Deployment":
        status = manifest["status"]
        return {**_revision_six(manifest), "status": status}
    if manifest["kind"] == "Pod":
        _rename_cache_pod(manifest)
        status = manifest["status"]["containerStatuses"][0]
        status["lastState"]["terminated"] |= {
            "exitCode": 1,
            "reason": "Error",
            "startedAt": f"{NIGHT}03:07:31Z",
            "finishedAt": f"{NIGHT}03:07:31Z",
        }
        status["state"]["waiting"]["message"] = (
            f"back-off 5m0s restarting failed container=cache pod={CACHE_POD}_{NAMESPACE}({manifest['metadata']['uid']})"
        )
        return manifest
    if manifest["kind"] == "Endpoints":
        manifest["subsets"][0]["notReadyAddresses"][0]["targetRef"]["name"] = CACHE_POD
        return manifest
    if manifest["metadata"]["name"] == f"basket-cache-{CACHE_HASH}":
        manifest["spec"]["replicas"] = manifest["status"]["replicas"] = 1
    return None if manifest["kind"] == "ReplicaSet" and not manifest["spec"]["replicas"] else manifest


def _checkout_without_image(manifest: Manifest) -> Manifest:
    """The newest revision is from 02:46, replaced the old one at once, and names a tag that does not exist."""
    newest = manifest["metadata"].get("annotations", {}).get("deployment.kubernetes.io/revision") == "42"
    kind, metadata = manifest["kind"], manifest["metadata"]
    if kind == "Deployment":
        manifest["spec"]["strategy"] = {"type": "Recreate"}
    if kind in {"Deployment", "ReplicaSet"} and newest:
        manifest["spec"]["template"]["spec"]["containers"][0]["image"] = BAD_IMAGE
    if kind == "Pod" or (kind == "ReplicaSet" and newest):
        metadata["creationTimestamp"] = f"{NIGHT}02:46:29Z"
    if kind == "Pod":
        manifest["spec"]["containers"][0]["image"] = BAD_IMAGE
        manifest["status"] = _never_pulled(manifest["status"])
    return manifest


def _never_pulled(status: Manifest) -> Manifest:
    since = f"{NIGHT}02:46:29Z"
    container = {
        "name": "checkout",
        "image": BAD_IMAGE,
        "imageID": "",
        "ready": False,
        "started": False,
        "restartCount": 0,
        "state": {
            "waiting": {
                "reason": "ImagePullBackOff",
                "message": f'Back-off pulling image "{BAD_IMAGE}": ErrImagePull: {NOT_FOUND}',
            }
        },
        "lastState": {},
    }
    conditions = [c | {"lastTransitionTime": since} for c in status["conditions"]]
    return {
        **status,
        "phase": "Pending",
        "startTime": since,
        "conditions": conditions,
        "containerStatuses": [container],
    }


# -- files


def _ref(kind: str, name: str) -> ObjectRef:
    return ObjectRef(kind, name, NAMESPACE)


def _copy(directory: Path) -> None:
    shutil.copytree(EXAMPLE, directory)


def _read(directory: Path, file: str) -> list[Manifest]:
    return list(yaml.load_all((directory / "cluster" / file).read_text(), Loader=yaml.CSafeLoader))


def _write(directory: Path, file: str, manifests: Iterable[Manifest]) -> None:
    text = yaml.dump_all(list(manifests), Dumper=yaml.CSafeDumper, sort_keys=False, width=1000)
    (directory / "cluster" / file).write_text(text)


def _edit(directory: Path, file: str, change: Callable[[Manifest], Manifest | None]) -> None:
    changed = (change(manifest) for manifest in _read(directory, file))
    _write(directory, file, [manifest for manifest in changed if manifest is not None])


def _find(directory: Path, file: str, kind: str, name: str = "") -> Manifest:
    return next(
        m for m in _read(directory, file) if m["kind"] == kind and name in {"", m["metadata"]["name"]}
    )


def _checkout_pods(directory: Path) -> list[tuple[str, str]]:
    pods = (m["metadata"] for m in _read(directory, "checkout.yaml") if m["kind"] == "Pod")
    return [(pod["name"], pod["uid"]) for pod in pods]


def _only_about(*prefixes: str) -> Callable[[Manifest], Manifest | None]:
    return lambda event: event if event["involvedObject"]["name"].startswith(prefixes) else None


def _add_event(directory: Path, reason: str, message: str, pod: str, uid: str, count: int) -> None:
    model = next(
        e for e in _read(EXAMPLE, "events.yaml") if e["involvedObject"]["name"].startswith("checkout-")
    )
    event = model | {
        "metadata": model["metadata"] | {"name": f"{pod}.{reason.lower()}"},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": pod,
            "namespace": NAMESPACE,
            "uid": uid,
        },
        "type": "Warning",
        "reason": reason,
        "message": message,
        "count": count,
        "firstTimestamp": f"{NIGHT}02:46:33Z",
        "lastTimestamp": f"{NIGHT}03:10:52Z",
    }
    _write(directory, "events.yaml", [*_read(directory, "events.yaml"), event])


def _clear_logs(directory: Path, *workloads: str) -> None:
    for workload in workloads:
        for path in (directory / "logs").glob(f"{NAMESPACE}_{workload}-*"):
            path.unlink()
