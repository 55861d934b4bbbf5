// Writes src/protocol.ts from protocol.schema.json, which write_schema.py takes from listening/protocol.py.
import { readFileSync, writeFileSync } from "node:fs";
import { compile } from "json-schema-to-typescript";

const here = (name) => new URL(name, import.meta.url);

// Pydantic titles every field, and each title would become a type of its own.
function withoutTitles(node) {
  if (Array.isArray(node)) return node.map(withoutTitles);
  if (node === null || typeof node !== "object") return node;
  const entries = Object.entries(node).filter(
    ([key, value]) => !(key === "title" && typeof value === "string"),
  );
  return Object.fromEntries(entries.map(([key, value]) => [key, withoutTitles(value)]));
}

export async function types() {
  const schema = withoutTitles(JSON.parse(readFileSync(here("protocol.schema.json"), "utf8")));
  const text = await compile(schema, "Protocol", {
    additionalProperties: false,
    bannerComment: "// Made by `npm run types` from protocol.schema.json; changed there, not here.",
    ignoreMinAndMaxItems: true,
    unreachableDefinitions: true,
    style: { printWidth: 110 },
  });
  const noise = /(\n *\*)?\n *\* This interface was referenced by .*\n *\* via the .*(?=\n)/g;
  return text.replaceAll(noise, "").replaceAll(/ *\/\*\*\n *\*\/\n/g, "");
}

if (process.argv[1] === new URL(import.meta.url).pathname)
  writeFileSync(here("src/protocol.ts"), await types());
