import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, expect, it } from "vitest";

const main = fileURLToPath(new URL("../src/main.ts", import.meta.url));
let folder: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "ts-board-"));
});
afterEach(() => rmSync(folder, { recursive: true }));

it("writes the plan to the workspace", () => {
  const output = execFileSync("tsx", [main], {
    env: { ...process.env, WORKSPACE: folder },
    encoding: "utf8",
  });
  expect(output).toContain("Haul the boat out      #\n");
  const planned = JSON.parse(readFileSync(join(folder, "plan.json"), "utf8")) as { id: string }[];
  expect(planned.map((card) => card.id)).toEqual(["haul-out", "caulk", "engine", "paint", "launch"]);
});
