import Ajv from "ajv/dist/2020";
import schema from "../protocol.schema.json";

const ajv = new Ajv({ strict: false });
ajv.addSchema(schema, "protocol");

/** What is wrong with a message, by the schema of listening/session/protocol.py; nothing when it fits. */
export function faults(name: "Answer" | "Next" | "Joined" | "Join", message: unknown): string[] {
  const check = ajv.compile({ $ref: `protocol#/$defs/${name}` });
  check(message);
  return (check.errors ?? []).map((error) => `${error.instancePath} ${error.message}`);
}
