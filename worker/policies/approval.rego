# Whether a human must approve a remediation before it is executed.
#
# Each rule below adds one risk factor: a score from 0 to 100 and a reason for the person on call. Approval is required
# if one factor scores `approval_score` or more; the others are shown for information. To change a decision, change a
# score; to add one, add a rule.
#
# The worker can make a decision stricter, never looser: its own approval factors (`input.approval_factors`) require
# approval whatever is written here.
#
# Conditions are written so that a missing field of `input` leads to approval: `not confident`, not `confidence < 0.8`.

package rca.approval

import rego.v1

approval_score := 50

default require_approval := false

require_approval if {
	some factor in risk_factors
	factor.score >= approval_score
}

reasons contains factor.reason if {
	some factor in risk_factors
	factor.score >= approval_score
}

# --- Doubts about the analysis: in every environment ---------------------------------------------------------------

# Information: what the cluster confirms is right whatever a text says, and nothing else passes.
risk_factors contains {"score": 40, "reason": "some of the evidence reads like instructions to the analysis"} if {
	input.injection_detected == true
}

risk_factors contains {"score": 100, "reason": "it is not known whether evidence reads like instructions"} if {
	not is_boolean(input.injection_detected)
}

# Rules ask the cluster itself, not its texts: is the blamed object in such a state, is it tied to the signal, does the
# action fit? What they do not bear out may be right all the same; a person decides.
risk_factors contains {"score": 70, "reason": reason} if {
	not corroborated
	doubt := object.get(object.get(input, "corroboration", {}), "reason", "")
	reason := trim_right(sprintf("The state of the cluster does not confirm the answer. %v", [doubt]), " ")
}

# What the model alone chose within the bounds of the catalog.
risk_factors contains {"score": 60, "reason": reason} if {
	some name, origin in object.get(input, "parameter_origins", {})
	not origin in {"code", "catalog_default"}
	reason := sprintf("the value of parameter %v is the model's own choice", [name])
}

risk_factors contains {"score": 60, "reason": "it is not known who chose the parameters"} if {
	not input.parameter_origins
}

risk_factors contains {"score": 90, "reason": "the affected resource is not known"} if {
	not target_known
}

risk_factors contains {"score": 90, "reason": "the worker could not check whether the affected resource exists"} if {
	not target_verified
}

risk_factors contains {"score": 70, "reason": reason} if {
	not confident
	reason := sprintf("confidence %v is below %v", [object.get(input, "confidence", "unknown"), confidence_threshold])
}

# After three failed remediations the cause is not understood.
risk_factors contains {"score": 100, "reason": reason} if {
	recovery_attempt >= 3
	reason := sprintf("this is recovery attempt %v", [recovery_attempt])
}

risk_factors contains {"score": 60, "reason": reason} if {
	some reason in object.get(input, "risk_factors", [])
}

# Cannot be undone by doing the opposite: approval in every environment.
risk_factors contains {"score": 80, "reason": reason} if {
	some word in {"delete", "remove", "purge", "wipe", "format", "restore", "defrag", "shrink"}
	startswith(action, word)
	reason := sprintf("%v is hard to undo", [action])
}

# --- Production ----------------------------------------------------------------------------------------------------
# An environment that is not known to be another one is production.

risk_factors contains {"score": 80, "reason": reason} if {
	is_production
	input.affected_resource.kind in shared_kinds
	reason := sprintf("a %v in production affects more than one workload", [input.affected_resource.kind])
}

risk_factors contains {"score": 60, "reason": reason} if {
	is_production
	input.affected_resource.kind in stateful_kinds
	reason := sprintf("a %v in production holds state", [input.affected_resource.kind])
}

risk_factors contains {"score": 60, "reason": "a stateful workload in production"} if {
	is_production
	detected("stateful")
	not input.affected_resource.kind in stateful_kinds
}

risk_factors contains {"score": 60, "reason": reason} if {
	is_production
	count(object.get(input, "failed_detections", [])) > 0
	reason := sprintf("the worker could not detect %v of the affected resource", [concat(", ", sort(input.failed_detections))])
}

risk_factors contains {"score": 60, "reason": "an earlier remediation of this incident failed in production"} if {
	is_production
	recovery_attempt >= 1
}

# Any other change in production: what is clearly low risk may run without approval, the rest may not.
risk_factors contains {"score": 50, "reason": reason} if {
	is_production
	not low_risk
	reason := sprintf("%v is not among the changes that may run in production without approval", [action])
}

# --- For information -----------------------------------------------------------------------------------------------

risk_factors contains {"score": 40, "reason": "the analysis has warnings"} if {
	count(object.get(input, "warnings", [])) > 0
}

risk_factors contains {"score": 40, "reason": "managed by GitOps, which reverts changes made outside of the repository"} if {
	detected("gitOpsManaged")
}

risk_factors contains {"score": 30, "reason": "a PodDisruptionBudget limits how many pods may be unavailable"} if {
	detected("pdbProtected")
}

risk_factors contains {"score": 20, "reason": "a HorizontalPodAutoscaler changes the number of replicas too"} if {
	detected("hpaEnabled")
}

risk_factors contains {"score": 20, "reason": "production"} if is_production

# --- Terms used above ----------------------------------------------------------------------------------------------

non_production := {
	"ci", "demo", "dev", "development", "integration", "lab", "local", "preview", "qa",
	"sandbox", "stage", "staging", "test", "testing", "uat",
}

is_production if not lower(object.get(input, "environment", "")) in non_production

# Low risk: the same pods, or more of them, behind the same Service. Such a change can be stopped half-way and undone, no
# image or setting changes, and the confidence is high. These actions roll: if the catalog states no downtime, there is
# none.
low_risk if {
	action in {"restart_deployment", "restart_pod", "restart_pods", "graceful_restart", "rollout_restart", "scale_up", "scale_out"}
	input.affected_resource.kind in {"Deployment", "ReplicaSet", "Pod"}
	input.confidence >= 0.9
	short_downtime
}

short_downtime if object.get(input, "estimated_downtime_seconds", 0) <= 30

shared_kinds := {
	"Node", "Namespace", "PersistentVolume", "StorageClass", "CustomResourceDefinition", "ResourceQuota", "LimitRange",
	"NetworkPolicy", "ClusterRole", "ClusterRoleBinding", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
}

stateful_kinds := {"StatefulSet", "PersistentVolumeClaim"}

action := object.get(object.get(input, "action", {}), "action", "an unknown action")

default confidence_threshold := 0.8

confidence_threshold := input.confidence_threshold

confident if input.confidence >= confidence_threshold

corroborated if input.corroboration.by in {"rules", "second_view"}

target_verified if input.unverified == false

target_known if input.affected_resource.kind != ""

detected(label) if input.detected_labels[label] == true

default recovery_attempt := 0

recovery_attempt := input.recovery_attempt_number if input.is_recovery_attempt == true
