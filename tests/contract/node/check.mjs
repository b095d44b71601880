// Reads schemas/v1 as other languages do: `node check.mjs DIRECTORY`. Prints one line for each error, and exits 1.
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { Parser } from "@asyncapi/parser";
import Ajv from "ajv/dist/2020.js";
import addFormats from "ajv-formats";

const ERROR = 0; // severity of a diagnostic
const SCHEMA = ".schema.json";
const directory = process.argv[2];
const read = (...path) => JSON.parse(readFileSync(join(directory, ...path), "utf8"));
const errors = [];

const { document, diagnostics } = await new Parser().parse(read("asyncapi.json"));
for (const found of diagnostics.filter((d) => d.severity === ERROR)) {
  errors.push(`asyncapi.json: ${found.path.join(".")}: ${found.message}`);
}
if (!document) errors.push("asyncapi.json: the parser gives no document");

const ajv = new Ajv({ strict: true, allErrors: true });
addFormats(ajv);
const names = readdirSync(directory).filter((f) => f.endsWith(SCHEMA)).map((f) => f.slice(0, -SCHEMA.length));
const validators = {};
for (const name of names) {
  try {
    validators[name] = ajv.compile(read(name + SCHEMA));
  } catch (problem) {
    errors.push(`${name}${SCHEMA}: ${problem.message}`);
  }
}

let samples = 0;
for (const file of readdirSync(join(directory, "samples"))) {
  const name = names.sort((a, b) => b.length - a.length).find((n) => file.startsWith(n));
  if (!name || !validators[name]) continue;
  samples += 1;
  if (!validators[name](read("samples", file))) {
    errors.push(`samples/${file}: ${ajv.errorsText(validators[name].errors)}`);
  }
}

for (const message of document?.allMessages().all() ?? []) {
  for (const example of message.examples().all()) {
    const headers = message.headers()?.json();
    const validate = headers && ajv.compile(JSON.parse(JSON.stringify(headers, (k, v) => (k.startsWith("x-parser") ? undefined : v))));
    if (validate && !validate(example.headers())) errors.push(`${message.id()}: headers: ${ajv.errorsText(validate.errors)}`);
    const payload = validators[message.name()];
    if (payload && message.id() !== "deadLetter" && !payload(example.payload())) {
      errors.push(`${message.id()}: payload: ${ajv.errorsText(payload.errors)}`);
    }
  }
}

for (const error of errors) console.error(error);
console.log(`${names.length} schemas, ${samples} samples, ${document?.allMessages().all().length ?? 0} messages`);
process.exit(errors.length ? 1 : 0);
