# Decides whether a human must approve a remediation before it is executed.
#
# Each rule below adds a risk factor: a score from 0 to 100, and a reason for the approver. Approval is required if a
# factor scores `approval_score` or more; the others are shown for information. To change a decision, change a score; to
# add one, add a rule.
#
# The worker can make a decision stricter, never looser: its own approval factors (`input.approval_factors`) require
# approval, whatever these rules say.
#
# Conditions are written so that a missing fact leads to approval: `not confident`, not `confidence < 0.8`. What the model
# merely estimates (downtime, risk) is optional, and only adds reasons.

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

# For information: text decides nothing. An answer that the cluster confirms may pass, and no other answer may.
risk_factors contains {"score": 40, "reason": "Some of the evidence reads like instructions to the analysis."} if {
	input.injection_detected == true
}

risk_factors contains {"score": 100, "reason": "It is not known whether evidence reads like instructions."} if {
	not is_boolean(input.injection_detected)
}

# The worker's rules check in the cluster, not in texts: is the affected object in a state that causes this, is it
# connected to the signal, does the action fit? An answer that they do not confirm may still be right: a human decides.
risk_factors contains {"score": 70, "reason": reason} if {
	not corroborated
	doubt := object.get(object.get(input, "corroboration", {}), "reason", "")
	reason := trim_right(sprintf("The state of the cluster does not confirm the answer. %v", [doubt]), " ")
}

# Values that the model alone chose within the bounds of the catalog. Values that the worker sets or checks do not count.
risk_factors contains {"score": 60, "reason": reason} if {
	some name, origin in object.get(input, "parameter_origins", {})
	not origin in {"code", "catalog_default"}
	reason := sprintf("The value of parameter %v is the model's own choice.", [name])
}

risk_factors contains {"score": 60, "reason": "It is not known who chose the parameters."} if {
	not input.parameter_origins
}

risk_factors contains {"score": 90, "reason": "The affected resource is not known."} if {
	not target_known
}

risk_factors contains {"score": 90, "reason": "The worker could not check whether the affected resource exists."} if {
	not target_verified
}

risk_factors contains {"score": 70, "reason": reason} if {
	not confident
	reason := sprintf("The confidence %v is below %v.", [object.get(input, "confidence", "unknown"), confidence_threshold])
}

# After three failed remediations the cause is not understood.
risk_factors contains {"score": 100, "reason": reason} if {
	recovery_attempt >= 3
	reason := sprintf("This is recovery attempt %v.", [recovery_attempt])
}

risk_factors contains {"score": 60, "reason": reason} if {
	some reason in object.get(input, "risk_factors", [])
}

# Actions without an inverse need approval in every environment.
risk_factors contains {"score": 80, "reason": reason} if {
	some word in {
		"delete", "remove", "purge", "wipe", "format", "restore", "recreate", "defrag", "shrink",
		"drop", "destroy", "truncate", "erase", "prune", "reimage",
	}
	named(word)
	not restores_configuration
	reason := sprintf("The action %v is hard to undo.", [action])
}

risk_factors contains {"score": 80, "reason": reason} if {
	startswith(action, "clean")
	some kind in kinds & stateful_kinds
	reason := sprintf("The action %v may delete what a %v holds.", [action, kind])
}

risk_factors contains {"score": 80, "reason": "The catalog declares the workflow as high risk."} if {
	input.declared_risk == "high"
}

# --- Production ----------------------------------------------------------------------------------------------------
# An environment that is not known to be another one is production.

risk_factors contains {"score": 80, "reason": reason} if {
	is_production
	some kind in kinds & shared_kinds
	reason := sprintf("A %v in production affects more than one workload.", [kind])
}

risk_factors contains {"score": 60, "reason": reason} if {
	is_production
	some kind in kinds & stateful_kinds
	reason := sprintf("A %v in production holds state.", [kind])
}

risk_factors contains {"score": 60, "reason": "This is a stateful workload in production."} if {
	is_production
	detected("stateful")
	count(kinds & stateful_kinds) == 0
}

# Actions that take capacity away, whatever the catalog declares: fewer replicas, evicted pods, a cordoned node.
risk_factors contains {"score": 70, "reason": reason} if {
	is_production
	takes_capacity
	reason := sprintf("The action %v may take capacity away in production.", [action])
}

risk_factors contains {"score": 60, "reason": reason} if {
	is_production
	input.estimated_downtime_seconds > max_downtime_seconds
	reason := sprintf("The action %v may take %v s, more than %v s in production.", [action, input.estimated_downtime_seconds, max_downtime_seconds])
}

risk_factors contains {"score": 60, "reason": "The model estimates the risk as high."} if {
	is_production
	input.estimated_risk == "high"
}

risk_factors contains {"score": 60, "reason": reason} if {
	is_production
	count(object.get(input, "failed_detections", [])) > 0
	reason := sprintf("The worker could not detect %v of the affected resource.", [concat(", ", sort(input.failed_detections))])
}

risk_factors contains {"score": 60, "reason": "An earlier remediation of this incident failed in production."} if {
	is_production
	recovery_attempt >= 1
}

# In production, only what the operator declares as low risk in the catalog may run without approval.
risk_factors contains {"score": 50, "reason": reason} if {
	is_production
	not input.declared_risk == "low"
	reason := sprintf("The catalog does not declare %v as low risk.", [action])
}

# --- For information -----------------------------------------------------------------------------------------------

risk_factors contains {"score": 40, "reason": "The analysis has warnings."} if {
	count(object.get(input, "warnings", [])) > 0
}

risk_factors contains {"score": 40, "reason": "A GitOps tool manages the target and reverts changes made outside of the repository."} if {
	detected("gitOpsManaged")
}

risk_factors contains {"score": 30, "reason": "A PodDisruptionBudget limits how many pods may be unavailable."} if {
	detected("pdbProtected")
}

risk_factors contains {"score": 20, "reason": "A HorizontalPodAutoscaler also changes the number of replicas."} if {
	detected("hpaEnabled")
}

risk_factors contains {"score": 20, "reason": "The environment is production."} if is_production

# --- Terms used above ----------------------------------------------------------------------------------------------

non_production := {
	"ci", "demo", "dev", "development", "integration", "lab", "local", "preview", "qa",
	"sandbox", "stage", "staging", "test", "testing", "uat",
}

is_production if not lower(object.get(input, "environment", "")) in non_production

# The kinds of the affected object and of the object that the workflow changes: often the same.
kinds := {kind | some name in {"affected_resource", "remediation_target"}; kind := input[name].kind}

# Restoring a ConfigMap loses no data, unlike restoring a backup.
restores_configuration if {
	startswith(action, "restore_config")
	kinds == {"ConfigMap"}
}

takes_capacity if {
	startswith(action, "scale_")
	not startswith(action, "scale_up")
	not startswith(action, "scale_out")
	not replicas_checked
}

# The worker checks a number of replicas only if it grows.
replicas_checked if {
	some name, origin in input.parameter_origins
	contains(lower(name), "replica")
	origin == "code"
}

takes_capacity if {
	some word in {"decrease", "reduce", "lower", "downscale"}
	named(word)
}

# The action is called so: one of its words, or how it begins (`deletepvc`).
named(word) if startswith(action, word)

named(word) if word in regex.split("[^a-z0-9]+", action)

takes_capacity if {
	some word in {"drain", "cordon", "evict", "suspend", "pause", "stop", "terminate"}
	contains(action, word)
	not startswith(action, "uncordon")
}

max_downtime_seconds := 60

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
