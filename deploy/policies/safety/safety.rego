# An example to start from: which actions are safe enough to run without approval.
#
# limits.yaml holds the limits: actions by priority, downtime by environment. An action needs approval unless
# `validate_action` is true for it, or if `requires_approval` is. An action, priority or environment without a limit is
# not allowed, because its look-up is undefined.
#
# Put it beside approval.rego, with limits.yaml: both decide, and the stricter decision counts.

package safety

import rego.v1

validate_action(action) if {
	allowed(action)
	not forbidden(action)
	action.estimated_downtime_seconds <= data.max_downtime[input.environment]
	not requires_approval(action)
}

allowed(action) if {
	some pattern in data.allowed_actions[input.priority]
	glob.match(pattern, [], action.action)
}

forbidden(action) if {
	some pattern in data.forbidden_actions
	glob.match(pattern, [], action.action)
}

requires_approval(action) if {
	input.priority == "P0"
	not data.risk_scores[action.risk_level] < data.risk_for_approval
}

# --- Reasons for the approver --------------------------------------------------------------------------------------

reasons contains sprintf("%v is not among the actions allowed for %v", [input.action.action, input.priority]) if {
	not allowed(input.action)
}

reasons contains sprintf("%v is forbidden", [input.action.action]) if forbidden(input.action)

reasons contains sprintf("it takes %v s, at most %v s are acceptable in %v", [downtime, limit, input.environment]) if {
	downtime := input.action.estimated_downtime_seconds
	limit := data.max_downtime[input.environment]
	downtime > limit
}

reasons contains "nobody knows how long it takes" if not input.action.estimated_downtime_seconds >= 0

reasons contains sprintf("there is no limit of downtime for %v", [input.environment]) if {
	not data.max_downtime[input.environment] >= 0
}

risk_factors contains {"score": score, "reason": reason} if {
	score := data.risk_scores[input.action.risk_level]
	reason := sprintf("the risk is %v", [input.action.risk_level])
}
