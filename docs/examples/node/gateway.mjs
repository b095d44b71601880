// A gateway: publishes each FILE (one request as JSON), then says which requests are rejected until it is stopped.
//
//   NATS_URL=nats://127.0.0.1:4222 NATS_USER=gateway NATS_PASSWORD=... node gateway.mjs FILE...
import { readFileSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";
import { jetstream } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import addFormats from "ajv-formats";
import Ajv from "ajv/dist/2020.js";

const schema = new URL("../../../schemas/v1/incident-request.schema.json", import.meta.url);
const ajv = addFormats(new Ajv({ allErrors: true }));
const valid = ajv.compile(JSON.parse(readFileSync(schema, "utf8")));

const nc = await connect({
  servers: process.env.NATS_URL,
  user: process.env.NATS_USER,
  pass: process.env.NATS_PASSWORD,
  maxReconnectAttempts: -1,
});
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => nc.close());
const js = jetstream(nc);

// Whatever a worker cannot accept, with every error: requests of other gateways, too.
nc.subscribe("rca.validation.request", {
  callback: (error, message) => {
    if (error) throw error;
    const { request_key, code, errors } = message.json();
    console.log(`rejected ${request_key}: ${code}: ${errors.map((e) => `${e.path}: expected ${e.expected}`).join("; ")}`);
  },
});

/** Returns when the server has stored the request. Only the acknowledgement proves that. */
async function publish(request) {
  const lane = (request.priority ?? "P2").toLowerCase();
  const body = JSON.stringify(request);
  for (let seconds = 1; ; seconds = Math.min(2 * seconds, 30)) {
    try {
      // The id is the same for every try, so that the server stores the request once.
      return await js.publish(`rca.request.incident.${lane}`, body, { msgID: request.remediation_id });
    } catch (error) {
      console.error(`${request.remediation_id} is not stored (${error.message}); trying again in ${seconds} s`);
      await pause(1000 * seconds);
    }
  }
}

for (const file of process.argv.slice(2)) {
  const request = JSON.parse(readFileSync(file, "utf8"));
  if (!valid(request)) {
    console.log(`not sent: ${ajv.errorsText(valid.errors, { dataVar: "request" })}`);
    continue;
  }
  const { seq, duplicate } = await publish(request);
  console.log(`${duplicate ? "was stored before" : "stored"} ${request.remediation_id}: sequence ${seq}`);
}
