"""What the state of pods says: memory, start, probes, images, missing configuration."""

import pytest

from tests.fakes.manifests import crashing, event, obj, replica_set, running
from tests.unit.domain.diagnosis.small_clusters import (
    blames,
    claim,
    findings,
    judged,
    node,
    pod_of,
    waiting,
    workload,
)
from worker.domain.cluster.fields import reference
from worker.domain.diagnosis.causes import Cause, Remedy, Strength
from worker.domain.diagnosis.claims import Doubt

LIMITED = {"resources": {"limits": {"memory": "64Mi"}}}


RECENTLY = "2026-06-04T15:00:00Z"


async def first(*manifests, about):
    return (await findings(*manifests, about=about))[0]


async def test_out_of_memory_at_its_own_limit_is_the_workload():
    api = workload(status=crashing("OOMKilled", 137), **LIMITED)
    found = await first(*api, about=api[0])
    assert (found.cause, found.object, found.remedies) == (
        Cause.OUT_OF_MEMORY, reference(api[0]), {Remedy.INCREASE_MEMORY})  # fmt: skip


async def test_out_of_memory_without_a_limit_is_the_node():
    api = workload(status=crashing("OOMKilled", 137))
    found = await first(*api, about=api[0])
    assert (found.cause, found.object.name) == (Cause.NODE, "node-1")
    assert not found.remedies


async def test_out_of_memory_at_the_limit_of_the_whole_pod_is_the_workload():
    api = workload(status=crashing("OOMKilled", 137))
    api[2]["spec"]["resources"] = {"limits": {"memory": "64Mi"}}
    found = await first(*api, about=api[0])
    assert (found.cause, found.object, found.remedies) == (Cause.OUT_OF_MEMORY, reference(api[0]), set())


@pytest.mark.parametrize("own", [{"name": "app", **LIMITED}, {"name": "other"}])
async def test_a_limit_that_the_template_does_not_set_is_not_raised_there(own):
    """A webhook or an autoscaler has set it: the template has another limit, or no such container."""
    api = workload(status=crashing("OOMKilled", 137), resources={"limits": {"memory": "32Mi"}})
    api[0]["spec"]["template"]["spec"]["containers"] = [own]
    found = await first(*api, about=api[0])
    assert (found.cause, found.object, found.remedies) == (Cause.OUT_OF_MEMORY, reference(api[0]), set())


async def test_a_default_limit_may_be_raised_in_the_template():
    api = workload(status=crashing("OOMKilled", 137), **LIMITED)
    del api[0]["spec"]["template"]["spec"]["containers"][0]["resources"]
    assert (await first(*api, about=api[0])).remedies == {Remedy.INCREASE_MEMORY}


async def test_a_healthy_pod_does_not_stand_for_its_failing_workload():
    api = workload(status=crashing("OOMKilled", 137), **LIMITED)
    well = pod_of(api[1], "api", "p2", status=running(), **LIMITED)
    for blamed, doubt in ((api[1], None), (api[2], None), (well, Doubt.NOTHING_WRONG)):
        assert (await judged(*api, well, about=api[0], claim=claim(blamed))).doubt is doubt


@pytest.mark.parametrize("others", [(), ("second",)])
async def test_a_missing_key_belongs_to_a_secret_only_if_no_other_one_is_asked_for_it(others):
    message = 'MountVolume.SetUp failed for volume "all" : references non-existent secret key: tls.key'
    names = ["first", *others]
    items = [{"key": "tls.key", "path": "k"}]
    volumes = [{"name": n, "secret": {"secretName": n, "items": items}} for n in names]
    api = workload(status=waiting("ContainerCreating"))
    container = api[2]["spec"]["containers"][0]
    container["volumeMounts"] = [{"name": n, "mountPath": f"/{n}"} for n in names]
    api[2]["spec"]["volumes"] = volumes
    found = await findings(*api, event(api[2], "FailedMount", message), about=api[0])
    assert [f.object.name for f in found if f.cause is Cause.MISSING_CONFIGURATION] == (
        [] if others else ["first"]
    )


async def test_an_old_kill_says_nothing_about_a_container_that_is_well():
    status = running(restarts=1)
    status["containerStatuses"][0]["lastState"] = {
        "terminated": {"reason": "OOMKilled", "exitCode": 137, "finishedAt": "2026-06-04T09:00:00Z"}
    }
    api = workload(status=status, **LIMITED)
    assert await findings(*api, about=api[0]) == ()


async def test_an_old_kill_says_nothing_about_a_container_that_runs_and_is_not_ready():
    status = crashing("OOMKilled", 137)
    status["containerStatuses"][0]["state"] = {"running": {"startedAt": "2026-06-04T09:00:00Z"}}
    ended = status["containerStatuses"][0]["lastState"]["terminated"]
    api = workload(status=status, **LIMITED)
    assert (await first(*api, about=api[0])).cause is Cause.OUT_OF_MEMORY
    ended["finishedAt"] = "2026-06-04T09:00:00Z"
    assert (await first(*api, about=api[0])).cause is Cause.NOT_READY


async def test_a_kill_without_a_time_counts_while_the_container_fails():
    api = workload(status=crashing("OOMKilled", 137), resources={"limits": {"memory": "64Mi"}})
    del api[2]["status"]["containerStatuses"][0]["lastState"]["terminated"]["finishedAt"]
    assert (await first(*api, about=api[0])).cause is Cause.OUT_OF_MEMORY


async def test_a_lowered_limit_may_be_rolled_back():
    api = workload(status=crashing("OOMKilled", 137), resources={"limits": {"memory": "16Mi"}})
    before = replica_set(api[0], "zz", 1, resources={"limits": {"memory": "256Mi"}})
    api[1]["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = "2"
    found = await first(*api, before, about=api[0])
    assert found.remedies == {Remedy.INCREASE_MEMORY, Remedy.ROLL_BACK}
    assert found.revision == 1
    raised = replica_set(api[0], "zz", 1, resources={"limits": {"memory": "8Mi"}})
    assert (await first(*api, raised, about=api[0])).remedies == {Remedy.INCREASE_MEMORY}


async def test_what_a_pod_of_an_earlier_revision_needs_says_nothing_about_the_template():
    api = workload(status=crashing("OOMKilled", 137), resources={"limits": {"memory": "16Mi"}})
    newest = replica_set(api[0], "zz", 2, image="shop/app:2", resources={"limits": {"memory": "16Mi"}})
    assert (await first(*api, about=api[0])).remedies == {Remedy.INCREASE_MEMORY}
    assert not (await first(*api, newest, about=api[0])).remedies


async def test_a_crash_by_itself_is_a_symptom_that_supports_no_action():
    api = workload()
    found = await first(*api, about=api[0])
    assert (found.cause, found.strength, found.remedies) == (
        Cause.CRASH_ON_START,
        Strength.SYMPTOM,
        frozenset(),
    )
    for action in ("RestartDeployment", "RollbackDeployment", "IncreaseMemoryLimits", "PatchConfiguration"):
        verdict = await judged(*api, about=api[0], claim=claim(api[0], action))
        assert verdict.doubt is Doubt.ACTION_DOES_NOT_FIT


@pytest.mark.parametrize(
    ("reason", "code"), [("StartError", 128), ("ContainerCannotRun", 127), ("Error", 126)]
)
async def test_a_command_that_cannot_be_run(reason, code):
    api = workload(status=crashing(reason, code))
    found = await first(*api, about=api[0])
    assert (found.cause, found.strength) == (Cause.DEFECTIVE_START, Strength.DIRECT)


async def test_a_failing_hook():
    api = workload(status=crashing(code=137))
    found = await first(*api, event(api[2], "FailedPostStartHook", "x"), about=api[0])
    assert found.cause is Cause.DEFECTIVE_START


@pytest.mark.parametrize(
    ("probe", "message"),
    [("livenessProbe", "Liveness probe failed"), ("startupProbe", "Startup probe failed")],
)
async def test_a_probe_that_kills(probe, message):
    api = workload(status=crashing(code=137), **{probe: {"tcpSocket": {"port": 80}}})
    failed = event(api[2], "Unhealthy", message)
    found = await first(*api, failed, about=api[0])
    assert (found.cause, found.remedies) == (Cause.PROBE, frozenset())  # it was answered for days
    for never_available in (True, False):
        if never_available:
            api[0]["status"] = {"replicas": 1}
        else:
            api[1]["metadata"]["creationTimestamp"] = RECENTLY
        found = await first(*api, failed, about=api[0])
        assert (found.cause, found.remedies) == (Cause.PROBE, {Remedy.FIX_PROBE})


async def test_a_kill_without_a_failing_probe_is_no_probe():
    api = workload(status=crashing(code=137), livenessProbe={"tcpSocket": {"port": 80}})
    assert (await first(*api, about=api[0])).cause is Cause.CRASH_ON_START


def unready(**container):
    status = running()
    status["conditions"][0]["status"] = "False"
    status["containerStatuses"][0]["ready"] = False
    return workload(status=status, **container)


async def test_a_readiness_probe_on_a_port_that_is_not_declared():
    api = unready(readinessProbe={"httpGet": {"port": 9999}}, ports=[{"containerPort": 8080, "name": "http"}])
    assert (await first(*api, about=api[0])).strength is Strength.SYMPTOM  # it was answered for days
    api[1]["metadata"]["creationTimestamp"] = RECENTLY
    found = await first(*api, about=api[0])
    assert (found.cause, found.strength) == (Cause.PROBE, Strength.DIRECT)
    api = unready(
        readinessProbe={"httpGet": {"port": "http"}}, ports=[{"containerPort": 8080, "name": "http"}]
    )
    assert (await first(*api, about=api[0])).cause is Cause.NOT_READY


@pytest.mark.parametrize(
    ("message", "remedies"),
    [
        ("rpc error: manifest unknown", {Remedy.FIX_IMAGE}),
        ("unauthorized: authentication required", {Remedy.REFRESH_PULL_SECRET}),
        ("toomanyrequests: You have reached your pull rate limit", set()),
        ("dial tcp: lookup registry: no such host", set()),
        ("no match for platform in manifest", set()),
        ("x509: certificate signed by unknown authority", set()),
        ("something new", set()),
    ],
)
async def test_images_by_the_class_of_the_message(message, remedies):
    api = workload(status=waiting("ImagePullBackOff", message))
    api[2]["spec"]["imagePullSecrets"] = [{"name": "reg"}]
    found = await first(*api, about=api[2])
    assert found.cause is Cause.IMAGE
    assert found.remedies == remedies


async def test_an_image_for_which_a_node_has_no_space():
    api = workload(status=waiting("ImagePullBackOff", "write /var/lib/x: no space left on device"))
    full = [{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "True"}]
    found = await findings(*api, node(conditions=full), about=api[2])
    assert (found[0].object.kind, found[0].remedies) == ("Node", {Remedy.CLEAN_NODE})
    assert (found[1].cause, found[1].strength, found[1].remedies) == (Cause.IMAGE, Strength.SYMPTOM, set())


@pytest.mark.parametrize(("field", "remedies"), [("runtimeClassName", {Remedy.ROLL_BACK}), ("image", set())])
async def test_a_sandbox_that_the_newest_revision_asks_for(field, remedies):
    """A sandbox is made before any image matters: a release of another image does not explain its failure."""
    status = waiting("ContainerCreating")
    api = workload(status=status)
    api.insert(1, replica_set(api[0], "old", 0))
    api[2]["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = "2"
    spec = api[2]["spec"]["template"]["spec"]
    (spec if field == "runtimeClassName" else spec["containers"][0])[field] = "gvisor"
    api[0]["status"] = {"conditions": [{"type": "Progressing", "reason": "ProgressDeadlineExceeded"}]}
    failed = event(api[3], "FailedCreatePodSandBox", 'no runtime for "runsc" is configured', count=9)
    found = await first(*api, failed, about=api[3])
    assert (found.cause, found.remedies) == (Cause.DEFECTIVE_START, remedies)


async def test_the_name_of_an_image_is_no_message():
    api = workload(
        image="registry/unauthorized/x:1",
        status=waiting("ErrImagePull", "registry/unauthorized/x:1: not found"),
    )
    assert (await first(*api, about=api[0])).remedies == {Remedy.FIX_IMAGE}


async def test_a_pull_secret_that_cannot_be_retrieved():
    api = workload(status=waiting("ErrImagePull", "pull access denied"))
    api[2]["spec"]["imagePullSecrets"] = [{"name": "reg"}]
    found = await first(*api, event(api[2], "FailedToRetrieveImagePullSecret", "x"), about=api[0])
    assert found.remedies == {Remedy.REFRESH_PULL_SECRET}
    assert (found.object.kind, found.object.name) == ("Secret", "reg")
    assert reference(api[0]) in found.also


async def test_a_pull_secret_whose_maker_fails_cannot_be_refreshed():
    api = workload(status=waiting("ErrImagePull", "401 unauthorized"))
    api[2]["spec"]["imagePullSecrets"] = [{"name": "reg"}]
    maker = obj("ExternalSecret", "reg", api_version="external-secrets.io/v1beta1", spec={},
                status={"conditions": [{"type": "Ready", "status": "False"}]})  # fmt: skip
    found = await first(*api, maker, about=api[0])
    assert (found.object, found.remedies) == (reference(maker), frozenset())
    maker["status"]["conditions"][0]["status"] = "True"
    assert (await first(*api, maker, about=api[0])).remedies == {Remedy.REFRESH_PULL_SECRET}


def new_image(message="not found", created=RECENTLY):
    api = workload(image="shop/app:2", status=waiting("ImagePullBackOff", message))
    api[1]["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = "2"
    api[1]["metadata"]["creationTimestamp"] = created
    return [*api, replica_set(api[0], "zz", 1)]


async def test_an_image_that_the_last_rollout_changed():
    api = new_image()
    found = await first(*api, about=api[0])
    assert found.remedies == {Remedy.FIX_IMAGE, Remedy.ROLL_BACK}
    assert found.revision == 1


@pytest.mark.parametrize(
    ("message", "created"),
    [("toomanyrequests", RECENTLY), ("401 Unauthorized", RECENTLY), ("not found", "2026-06-01T11:00:00Z")],
)
async def test_an_image_that_a_rollback_does_not_bring_back(message, created):
    """The tag is not at fault, or the revision is old and ran."""
    api = new_image(message, created)
    assert Remedy.ROLL_BACK not in (await first(*api, about=api[0])).remedies


async def test_docker_hub_does_not_say_whether_an_image_is_absent_or_denied():
    denied = "pull access denied, repository does not exist or may require authorization"
    api = new_image(denied)
    assert (await first(*api, about=api[0])).remedies == {Remedy.FIX_IMAGE, Remedy.ROLL_BACK}
    api = new_image(denied, "2026-06-01T11:00:00Z")
    assert not (await first(*api, about=api[0])).remedies  # the pod has no secret to refresh
    api[2]["spec"]["imagePullSecrets"] = [{"name": "reg"}]
    assert (await first(*api, about=api[0])).remedies == {Remedy.REFRESH_PULL_SECRET}


async def test_an_image_that_another_pod_of_the_revision_runs():
    api = new_image()
    well = pod_of(api[1], "api", "p2", status=running(), image="shop/app:2")
    assert (await first(*api, well, about=api[0])).remedies == {Remedy.FIX_IMAGE}


def mounting(kind: str = "configMap", **source):
    api = workload(status=waiting("ContainerCreating"))
    api[2]["spec"]["volumes"] = [{"name": "v", kind: source}]
    return api


async def test_a_config_map_that_is_not_there():
    api = mounting(name="conf")
    found = await first(*api, about=api[0])
    assert (found.cause, found.object.kind, found.object.name) == (
        Cause.MISSING_CONFIGURATION,
        "ConfigMap",
        "conf",
    )
    assert blames(found, reference(api[0]))
    assert await findings(*mounting(name="conf", optional=True), about=api[0]) == ()


async def test_a_config_map_that_never_was_there_cannot_be_restored():
    api = mounting(name="conf")
    assert Remedy.RESTORE_CONFIGURATION in (await first(*api, about=api[0])).remedies
    api[0]["status"] = {"replicas": 1}
    assert Remedy.RESTORE_CONFIGURATION not in (await first(*api, about=api[0])).remedies


async def test_a_config_map_that_only_the_newest_revision_asks_for_cannot_be_restored():
    api = mounting(name="conf")
    api[1]["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = "2"
    api[1]["spec"]["template"]["spec"]["volumes"] = api[2]["spec"]["volumes"]
    found = await first(*api, replica_set(api[0], "zz", 1), about=api[0])
    assert found.remedies == {Remedy.ROLL_BACK}


async def test_a_key_that_a_config_map_lacks():
    api = mounting(name="conf", items=[{"key": "a.yaml", "path": "a"}])
    conf = obj("ConfigMap", "conf", data={"b.yaml": ""})
    found = await first(*api, conf, about=api[0])
    assert found.remedies == {Remedy.RESTORE_CONFIGURATION, Remedy.PATCH_CONFIGURATION}
    assert await findings(*api, obj("ConfigMap", "conf", data={"a.yaml": ""}), about=api[0]) == ()


async def test_a_key_for_the_environment():
    env = [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "conf", "key": "a"}}}]
    api = workload(
        status=waiting("CreateContainerConfigError", "couldn't find key a in ConfigMap shop/conf"), env=env
    )
    found = await first(*api, obj("ConfigMap", "conf", data={}), about=api[0])
    assert (found.object.name, found.cause) == ("conf", Cause.MISSING_CONFIGURATION)


async def test_a_map_that_only_an_earlier_revision_misses():
    env = [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "conf", "key": "a"}}}]
    said = "couldn't find key a in ConfigMap shop/conf"
    api = workload(status=waiting("CreateContainerConfigError", said), env=env)
    conf = obj("ConfigMap", "conf", data={})
    assert Remedy.PATCH_CONFIGURATION in (await first(*api, conf, about=api[0])).remedies
    newest = replica_set(api[0], "zz", 2)
    assert not (await first(*api, conf, newest, about=api[0])).remedies


def using(*keys):
    """Variables from these keys of a Secret."""
    refs = [{"secretKeyRef": {"name": "auth", "key": key}} for key in keys]
    return {"env": [{"name": f"V{n}", "valueFrom": ref} for n, ref in enumerate(refs)]}


@pytest.mark.parametrize(
    ("before", "status", "remedies"),
    [
        (["token"], running(), {Remedy.ROLL_BACK}),
        (["token", "api-token"], running(), set()),  # the key was removed since
        (["token"], None, set()),  # whether it still has the former key is not known
    ],
)
async def test_a_key_of_a_secret_that_only_the_newest_revision_asks_for(before, status, remedies):
    said = "couldn't find key api-token in Secret shop/auth"
    api = workload(status=waiting("CreateContainerConfigError", said), **using("token", "api-token"))
    api[1]["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = "2"
    former = replica_set(api[0], "zz", 1, **using(*before))
    old = [pod_of(former, "api", "p0", status=status, **using(*before))] if status else []
    found = await first(*api, former, *old, about=api[0])
    assert (found.object.name, found.remedies) == ("auth", remedies)


async def test_a_secret_that_the_kubelet_misses():
    api = mounting("secret", secretName="tls")
    said = event(api[2], "FailedMount", 'MountVolume.SetUp failed for volume "v": secret "tls" not found')
    found = await first(*api, said, about=api[0])
    assert (found.object.kind, found.object.name) == ("Secret", "tls")
    assert not found.remedies


async def test_what_should_have_made_the_secret_may_be_blamed_too():
    api = mounting("secret", secretName="tls")
    said = event(api[2], "FailedMount", 'secret "tls" not found')
    maker = obj("ExternalSecret", "tls", api_version="external-secrets.io/v1beta1", spec={"target": {"name": "tls"}},
                status={"conditions": [{"type": "Ready", "status": "False"}]})  # fmt: skip
    assert blames(await first(*api, said, maker, about=api[0]), reference(maker))


async def test_other_errors_of_the_kubelet():
    api = workload(
        status=waiting("CreateContainerConfigError", "container has runAsNonRoot and image will run as root")
    )
    assert (await first(*api, about=api[0])).cause is Cause.DEFECTIVE_START
    api = workload(status=waiting("ContainerCreating"))
    said = event(api[2], "Failed", "hcs::CreateComputeSystem app: does not match", count=9)
    assert (await first(*api, said, about=api[0])).cause is Cause.DEFECTIVE_START


async def test_a_volume_that_is_not_attached():
    api = mounting("persistentVolumeClaim", claimName="data")
    data = obj("PersistentVolumeClaim", "data", spec={"volumeName": "pv-1"}, status={"phase": "Bound"})
    said = event(api[2], "FailedAttachVolume", "Multi-Attach error", count=4)
    found = await first(*api, data, said, about=api[0])
    assert (found.cause, found.strength) == (Cause.VOLUME, Strength.TIMED)
    assert blames(found, reference(data))


async def test_a_volume_that_the_kubelet_cannot_mount():
    status = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]}
    api = workload(status=status)
    api[2]["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "share"}}]
    claimed = obj("PersistentVolumeClaim", "share", spec={"volumeName": "pv-1"}, status={"phase": "Bound"})
    told = event(
        api[2], "FailedMount", 'MountVolume.SetUp failed for volume "pv-1" : mount failed: exit status 32'
    )
    found = await first(*api, claimed, told, about=api[2])
    assert (found.cause, found.object.name, found.strength) == (Cause.VOLUME, "share", Strength.SYMPTOM)
    other = event(api[2], "FailedMount", 'MountVolume.SetUp failed for volume "pv-10" : mount failed')
    assert "share" not in [f.object.name for f in await findings(*api, claimed, other, about=api[2])]


async def test_a_container_that_ended_once_is_not_called_a_crash_loop():
    once = workload(status=crashing(restarts=0))
    state = once[2]["status"]["containerStatuses"][0]
    state["state"] = {"terminated": state.pop("lastState")["terminated"]}
    assert "CrashLoopBackOff" not in (await first(*once, about=once[0])).signals


async def test_a_readiness_gate_that_is_not_met():
    api = workload(status=running())
    api[2]["spec"]["readinessGates"] = [{"conditionType": "x.io/ready"}]
    api[2]["status"]["conditions"] = [
        {"type": "ContainersReady", "status": "True"},
        {"type": "Ready", "status": "False"},
    ]
    assert (await first(*api, about=api[0])).cause is Cause.NOT_READY


async def test_a_resize_that_does_not_fit():
    api = workload(status=running())
    api[2]["status"]["conditions"].append(
        {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    )
    assert (await first(*api, about=api[2])).object == reference(api[2])


async def test_finished_pods_that_were_replaced_are_not_sick():
    api = workload(status=running())
    gone = pod_of(api[1], "api", "p0", status={"phase": "Failed", "reason": "NodeShutdown"})
    gone["metadata"]["creationTimestamp"] = "2026-06-04T10:00:00Z"
    assert await findings(*api, gone, about=api[0]) == ()
    told = await first(*api, gone, about=gone)
    assert (told.object, told.strength, told.remedies) == (reference(api[0]), Strength.SYMPTOM, frozenset())


async def test_a_pod_without_an_owner_is_its_own_workload():
    alone = pod_of(workload()[1], "api", status=crashing("OOMKilled", 137), **LIMITED)
    del alone["metadata"]["ownerReferences"]
    found = await first(alone, about=alone)
    assert found.object == reference(alone)


async def test_a_rollout_that_brought_a_reference_to_what_is_not_there():
    volumes = [{"name": "v", "configMap": {"name": "conf"}}]
    api = mounting(name="conf")
    api[1]["spec"]["template"]["spec"]["volumes"] = volumes
    api[1]["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = "2"
    found = await first(*api, replica_set(api[0], "zz", 1), about=api[0])
    assert Remedy.ROLL_BACK in found.remedies
    assert found.revision == 1


async def test_pods_of_a_custom_owner_are_found_by_its_selector():
    owner = obj(
        "DeploymentConfig", "legacy", api_version="apps.openshift.io/v1", spec={"selector": {"app": "api"}}
    )
    alone = pod_of(workload()[1], "api", status=crashing("OOMKilled", 137), **LIMITED)
    del alone["metadata"]["ownerReferences"]
    found = await first(owner, alone, about=owner)
    assert (found.cause, found.object) == (Cause.OUT_OF_MEMORY, reference(owner))
