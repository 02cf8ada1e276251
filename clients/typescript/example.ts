// Upload a file, say why it waits, and print its text: node build/example.js FILE
// with the address in FAIRLANE_SERVER and the key in FAIRLANE_KEY.
import { openAsBlob } from "node:fs";
import { basename } from "node:path";
import { Fairlane, FairlaneError } from "fairlane-client";

const client = new Fairlane(process.env.FAIRLANE_SERVER ?? "http://127.0.0.1:8000", process.env.FAIRLANE_KEY ?? "");
const path = process.argv[2] ?? "README.md";
try {
  const receipt = await client.submitFile(await openAsBlob(path), basename(path), { key: `example-${path}` });
  console.log(`${receipt.id} has priority ${receipt.priority}`);
  console.log((await client.explain(receipt.id)).sentence);
  const document = await client.wait(receipt.id, 60);
  console.log(document.state === "done" ? await client.text(receipt.id) : `${document.state}: ${document.reason ?? "it still waits"}`);
} catch (error) {
  if (!(error instanceof FairlaneError)) throw error;
  console.error(`${error.code}: ${error.message}`);
  process.exitCode = 1;
}
