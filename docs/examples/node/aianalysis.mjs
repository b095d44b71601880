// A consumer of results: decides what to do with each, until it is stopped.
//
//   NATS_URL=nats://127.0.0.1:4222 NATS_USER=aianalysis NATS_PASSWORD=... node aianalysis.mjs
import { jetstream } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";

const nc = await connect({
  servers: process.env.NATS_URL,
  user: process.env.NATS_USER,
  pass: process.env.NATS_PASSWORD,
  maxReconnectAttempts: -1,
});
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => nc.drain());

const handled = new Map(); // use a database: a message may be delivered twice, also after a restart

/** What docs/consumers.md says to do. A status that is not known here is escalated. */
function decide(result) {
  switch (result.status) {
    case "completed":
      return result.approval.required
        ? { action: "ask", why: result.approval.reasons }
        : { action: "execute", workflow: result.selected_workflow };
    case "not_actionable":
    case "resolved":
      return { action: "close" };
    default:
      return { action: "escalate", why: [result.human_review_reason, result.human_review_detail] };
  }
}

// An account without streams of its own imports the JetStream API under this prefix.
const consumer = await jetstream(nc, { apiPrefix: "RCA.API" }).consumers.get("RCA_RESULTS", "aianalysis");
for await (const message of await consumer.consume()) {
  // The request key. CloudEvents headers are percent-encoded; ce-type says whether it is an incident or a recovery.
  const key = decodeURIComponent(message.headers.get("ce-subject"));
  const result = message.json();
  // Only a `failed` result has a successor: an operator sent the request again.
  if (!handled.has(key) || handled.get(key) === "failed") {
    const { action, workflow, why } = decide(result);
    console.log(`${key}: ${action}`, JSON.stringify(workflow ?? why ?? null));
    handled.set(key, result.status);
  }
  await message.ackAck(); // after it was stored, not before
}
