# An example to start from: an action runs without approval only after it has often helped.
#
# `input.track_record` says how often this type of action was proposed in this environment, and how often it is known to
# have helped (`succeeded`) or not to have helped (`failed`). It is null while the worker does not know. Then the
# conditions below are undefined, and approval is required.
#
# Put it beside approval.rego: both decide, and the stricter decision counts. Start with RCA_POLICY__MODE=observe:
# proposals that humans approve and execute build up the track record in either mode.

package aianalysis.approval

import rego.v1

min_successes := 10

# How many successes make up for one failure.
successes_for_failure := 10

default require_approval := true

require_approval := false if {
	enough_successes
	few_failures
}

enough_successes if input.track_record.succeeded >= min_successes

few_failures if input.track_record.failed * successes_for_failure <= input.track_record.succeeded

# --- Reasons for the approver --------------------------------------------------------------------------------------

reasons contains "the track record of this action is not known" if not input.track_record.succeeded >= 0

reasons contains reason if {
	input.track_record.succeeded < min_successes
	reason := sprintf("%v in %v: too few known successes (%v of %v)", [
		input.action_type, input.environment, input.track_record.succeeded, min_successes,
	])
}

reasons contains reason if {
	not few_failures
	reason := sprintf("%v in %v: too many failures (%v, and %v successes)", [
		input.action_type, input.environment, input.track_record.failed, input.track_record.succeeded,
	])
}
