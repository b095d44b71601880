"""What was changed before pods failed, by the order of times."""

import pytest

from tests.fakes.manifests import crashing, obj, replica_set, running
from tests.unit.domain.diagnosis.small_clusters import claim, findings, judged, pod_of, waiting, workload
from worker.domain.cluster.fields import reference
from worker.domain.diagnosis.causes import Cause, Remedy, Strength
from worker.domain.diagnosis.claims import Doubt


def rolled_out(*, failed_at: str = "", reason: str = "", new: str = "shop/app:2"):
    """A Deployment whose second revision crashes."""
    api = workload(image=new)
    api[1]["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = "2"
    api[1]["metadata"]["creationTimestamp"] = "2026-06-04T15:00:00Z"
    conditions = (
        [{"type": "Available", "status": "False", "lastTransitionTime": failed_at}] if failed_at else []
    )
    conditions += [{"type": "Progressing", "status": "False", "reason": reason}] if reason else []
    api[0]["status"] = {"replicas": 1, "conditions": conditions}
    return [*api, replica_set(api[0], "zz", 1)]


async def test_a_failure_right_after_a_rollout_speaks_for_a_rollback():
    api = rolled_out(failed_at="2026-06-04T15:05:00Z")
    found = (await findings(*api, about=api[0]))[0]
    assert (found.cause, found.strength, found.revision) == (Cause.BAD_ROLLOUT, Strength.TIMED, 1)
    assert found.remedies == {Remedy.ROLL_BACK}
    assert (await judged(*api, about=api[0], claim=claim(api[0], "RollbackDeployment"))).confirmed


async def test_a_failure_long_after_the_rollout_does_not():
    api = rolled_out(failed_at="2026-06-04T17:30:00Z")
    assert (await findings(*api, about=api[0]))[0].cause is Cause.CRASH_ON_START


async def test_a_rollout_that_did_not_progress_in_time():
    api = rolled_out(reason="ProgressDeadlineExceeded")
    found = (await findings(*api, about=api[0]))[0]
    assert (found.cause, found.strength) == (Cause.BAD_ROLLOUT, Strength.TIMED)


async def test_the_revision_before_still_runs_well():
    api = rolled_out()
    old = pod_of(api[3], "api", status=running())
    found = (await findings(*api, old, about=api[0]))[0]
    assert (found.cause, found.strength) == (Cause.BAD_ROLLOUT, Strength.TIMED)


def twice_broken(**status):
    """A Deployment whose second and third revision fail, the third with a status of its pod; `ready` still runs the first."""
    api = rolled_out(reason="ProgressDeadlineExceeded", new="shop/app:3")
    api[1]["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = "3"
    api[2]["status"] = status or api[2]["status"]
    between = replica_set(api[0], "yy", 2, image="shop/app:2")
    return [*api, between, pod_of(api[3], "api", status=running())]


@pytest.mark.parametrize("status", [{}, waiting("ImagePullBackOff", "manifest unknown")])
async def test_the_revision_that_still_runs_is_the_one_to_go_back_to(status):
    api = twice_broken(**status)
    for revision, right in ((1, True), (2, False), (0, False), (None, False)):
        wanted = claim(api[0], "RollbackDeployment", revision=revision)
        assert (await judged(*api, about=api[0], claim=wanted)).confirmed is right


async def test_a_rollout_of_what_was_down_before_is_not_to_blame():
    api = twice_broken(**waiting("ImagePullBackOff", "manifest unknown"))[:-1]
    api[0]["status"]["conditions"] += [
        {"type": "Available", "status": "False", "lastTransitionTime": "2026-06-03T10:00:00Z"}
    ]
    found = (await findings(*api, about=api[0]))[0]
    assert (found.cause, found.remedies) == (Cause.IMAGE, {Remedy.FIX_IMAGE})


async def test_a_restart_hides_no_rollout():
    api = rolled_out(failed_at="2026-06-04T15:05:00Z")
    again = replica_set(api[0], "bb", 3, image="shop/app:2")
    again["spec"]["template"]["metadata"]["annotations"] = {"kubectl.kubernetes.io/restartedAt": "x"}
    api = [*api, again, pod_of(again, "api", status=crashing(), image="shop/app:2")]
    wanted = claim(api[0], "RollbackDeployment", revision=1)
    assert (await judged(*api, about=api[-1], claim=wanted)).confirmed


async def test_no_revision_means_the_one_before_the_newest():
    api = rolled_out(failed_at="2026-06-04T15:05:00Z")
    assert (await judged(*api, about=api[0], claim=claim(api[0], "RollbackDeployment", revision=0))).confirmed


@pytest.mark.parametrize("revision", [2, 7])
async def test_only_the_revision_before_is_confirmed(revision):
    api = rolled_out(failed_at="2026-06-04T15:05:00Z")
    verdict = await judged(*api, about=api[0], claim=claim(api[0], "RollbackDeployment", revision=revision))
    assert verdict.doubt is Doubt.ACTION_DOES_NOT_FIT
    right = await judged(*api, about=api[0], claim=claim(api[0], "RollbackDeployment", revision=1))
    assert right.confirmed


async def test_a_restart_is_no_rollout():
    api = rolled_out(failed_at="2026-06-04T15:05:00Z", new="shop/app:1")
    api[1]["spec"]["template"]["metadata"]["annotations"] = {"kubectl.kubernetes.io/restartedAt": "x"}
    assert (await findings(*api, about=api[0]))[0].cause is Cause.CRASH_ON_START


async def test_stateful_sets_keep_revisions_of_their_own():
    owner = obj("StatefulSet", "db", api_version="apps/v1", spec={"replicas": 1}, status={
        "conditions": [{"type": "Available", "status": "False", "lastTransitionTime": "2026-06-04T15:01:00Z"}]})  # fmt: skip
    revisions = [
        obj("ControllerRevision", f"db-{name}", api_version="apps/v1", owner=owner, revision=number, creationTimestamp=when,
            data={"spec": {"template": {"spec": {"containers": [{"name": "app", "image": image}]}}}})
        for name, number, when, image in (("a", 1, "2026-06-01T10:00:00Z", "x:1"), ("b", 2, "2026-06-04T15:00:00Z", "x:2"))
    ]  # fmt: skip
    pods = pod_of(owner, "db", status=crashing())
    pods["metadata"]["labels"]["controller-revision-hash"] = "db-b"
    found = (await findings(owner, *revisions, pods, about=owner))[0]
    assert (found.cause, found.revision) == (Cause.BAD_ROLLOUT, 1)
    pods["metadata"]["labels"]["controller-revision-hash"] = "db-a"
    assert (await findings(owner, *revisions, pods, about=owner))[0].cause is Cause.CRASH_ON_START


def half_updated(current="db-a", update="db-b"):
    """A StatefulSet without conditions, whose pod of the second revision crashes."""
    owner = obj("StatefulSet", "db", api_version="apps/v1", spec={"replicas": 2}, status={
        "currentRevision": current, "updateRevision": update})  # fmt: skip
    revisions = [
        obj("ControllerRevision", f"db-{name}", api_version="apps/v1", owner=owner, revision=number,
            data={"spec": {"template": {"spec": {"containers": [{"name": "app", "image": f"x:{number}"}]}}}})
        for name, number in (("a", 1), ("b", 2))
    ]  # fmt: skip
    new = pod_of(owner, "db", "1", status=crashing())
    new["metadata"]["labels"]["controller-revision-hash"] = "db-b"
    return [owner, *revisions, new]


async def test_a_stateful_set_whose_controller_states_that_the_update_is_half_done():
    db = half_updated()
    found = (await findings(*db, about=db[0]))[0]
    assert (found.cause, found.strength, found.revision) == (Cause.BAD_ROLLOUT, Strength.TIMED, 1)
    done = half_updated(current="db-b")
    assert (await findings(*done, about=done[0]))[0].cause is Cause.CRASH_ON_START


async def test_pods_of_the_revision_before_run_well_in_a_stateful_set():
    db = half_updated(current="db-b")
    old = pod_of(db[0], "db", "0", status=running())
    old["metadata"]["labels"]["controller-revision-hash"] = "db-a"
    found = (await findings(*db, old, about=db[0]))[0]
    assert (found.cause, found.strength) == (Cause.BAD_ROLLOUT, Strength.TIMED)


def configured(changed_at: str, failed_at: str = "2026-06-04T15:05:00Z"):
    """A crashing Deployment of 1 June whose ConfigMap changed at a time."""
    api = workload(envFrom=[{"configMapRef": {"name": "conf"}}])
    api[0]["status"]["conditions"] = [
        {"type": "Available", "status": "False", "lastTransitionTime": failed_at}
    ]
    managed = [
        {"manager": "kubectl", "time": changed_at},
        {"subresource": "status", "time": "2026-06-09T00:00:00Z"},
    ]
    conf = obj("ConfigMap", "conf", data={}, managedFields=managed, creationTimestamp="2026-05-01T00:00:00Z")
    return [*api, conf]


async def test_a_config_map_that_changed_before_the_failure():
    api = configured("2026-06-04T15:00:00Z")
    found = (await findings(*api, about=api[0]))[0]
    assert (found.cause, found.object) == (Cause.BAD_CONFIGURATION_CHANGE, reference(api[3]))
    labels = {"signal_type": ("CrashLoopBackOff",)}
    assert (
        await judged(*api, about=api[0], claim=claim(api[3], "PatchConfiguration", labels=labels))
    ).confirmed
    other = {"signal_type": ("ConnectionPoolExhausted",)}
    verdict = await judged(*api, about=api[0], claim=claim(api[3], "PatchConfiguration", labels=other))
    assert verdict.doubt is Doubt.ACTION_DOES_NOT_FIT


@pytest.mark.parametrize(
    "changed_at", ["2026-05-20T10:00:00Z", "2026-06-04T15:20:00Z", "2026-06-01T12:00:00Z"]
)
async def test_changes_before_the_template_after_the_failure_or_long_ago_prove_nothing(changed_at):
    api = configured(changed_at)
    assert (await findings(*api, about=api[0]))[0].cause is Cause.CRASH_ON_START


@pytest.mark.parametrize("odd", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
@pytest.mark.parametrize("place", ["changed", "failed", "made", "unready"])
async def test_a_time_that_nothing_can_be_added_to_counts_as_unknown(odd, place):
    times = {"changed_at": odd} if place == "changed" else {"changed_at": "2026-06-04T15:00:00Z"}
    api = configured(**times, **({"failed_at": odd} if place == "failed" else {}))
    if place == "made":
        api[1]["metadata"]["creationTimestamp"] = odd
    if place == "unready":
        api[2]["status"]["conditions"][0]["lastTransitionTime"] = odd
    assert await findings(*api, about=api[0])


async def test_of_two_config_maps_that_changed_none_is_confirmed():
    api = configured("2026-06-04T15:00:00Z")
    api[2]["spec"]["containers"][0]["envFrom"] += [{"configMapRef": {"name": "other"}}]
    other = obj(
        "ConfigMap", "other", data={}, managedFields=[{"manager": "kubectl", "time": "2026-06-04T14:50:00Z"}]
    )
    labels = {"signal_type": ("CrashLoopBackOff",)}
    for blamed in (api[3], other):
        wanted = claim(blamed, "PatchConfiguration", labels=labels)
        assert not (await judged(*api, other, about=api[0], claim=wanted)).confirmed


async def test_a_change_after_the_pods_had_begun_to_fail_proves_nothing():
    api = configured("2026-06-04T15:00:00Z")
    api[0]["status"].pop("conditions")
    assert (await findings(*api, about=api[0]))[0].cause is Cause.BAD_CONFIGURATION_CHANGE
    api[2]["status"]["conditions"][0]["lastTransitionTime"] = "2026-06-01T00:00:00Z"
    assert (await findings(*api, about=api[0]))[0].cause is Cause.CRASH_ON_START


async def test_a_change_that_is_seen_only_after_a_restart_is_stale_configuration():
    api = configured("2026-06-04T15:00:00Z")
    api[2]["status"] = running()
    found = (await findings(*api, about=api[0]))[0]
    assert (found.cause, found.remedies) == (Cause.STALE_CONFIGURATION, {Remedy.RESTART})


@pytest.mark.parametrize("kind", ["Job", ""])
async def test_pods_that_nobody_makes_again_are_not_restarted(kind):
    conf = configured("2026-06-04T15:00:00Z")[-1]
    job = [obj("Job", "once", api_version="batch/v1", spec={}, status={"active": 1})] if kind else []
    alone = obj("Pod", "once-x1x1x", spec=configured("x")[2]["spec"], status=running())
    if job:
        alone["metadata"]["ownerReferences"] = [
            {"kind": kind, "apiVersion": "batch/v1", "name": "once", "controller": True}
        ]
    found = (await findings(*job, alone, conf, about=alone))[0]
    assert (found.cause, found.remedies) == (Cause.STALE_CONFIGURATION, frozenset())


async def test_a_change_of_long_ago_makes_no_stale_configuration():
    api = configured("2026-06-02T10:00:00Z")
    api[2]["status"] = running()
    api[2]["status"]["containerStatuses"][0]["state"]["running"]["startedAt"] = "2026-06-01T15:00:00Z"
    assert await findings(*api, about=api[0]) == ()


async def test_what_could_not_be_read_keeps_the_order_of_changes_from_bearing_an_answer_out():
    from tests.fakes.memory_cluster import MemoryCluster
    from worker.domain.diagnosis.claims import corroborate
    from worker.domain.diagnosis.driver import Budget, Investigator
    from worker.domain.diagnosis.facts import ClusterFacts
    from worker.domain.values.errors import ClusterReason

    api = rolled_out(failed_at="2026-06-04T15:05:00Z")
    cluster = MemoryCluster(api)
    cluster.fail(ClusterReason.FORBIDDEN, kind="Service")
    wanted = claim(api[0], "RollbackDeployment")
    verdict = await Investigator(cluster, Budget()).conclude(
        ClusterFacts(), lambda f: corroborate(f, reference(api[0]), wanted)
    )
    assert verdict.doubt is Doubt.UNKNOWN


async def test_a_config_map_that_is_named_by_key_counts_too():
    env = [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "conf", "key": "a"}}}]
    api = workload(env=env, status=running())
    managed = [{"manager": "kubectl", "time": "2026-06-04T15:00:00Z"}]
    conf = obj("ConfigMap", "conf", data={"a": ""}, managedFields=managed)
    assert (await findings(*api, conf, about=api[0]))[0].cause is Cause.STALE_CONFIGURATION
