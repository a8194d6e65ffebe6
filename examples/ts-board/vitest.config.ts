import { homedir } from "node:os";
import { join } from "node:path";
import { defineConfig } from "vitest/config";

const caches = process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache");

export default defineConfig({
  // Results of earlier runs order the files of the next one. They belong to whoever runs the
  // tests, not to the project, which can be read-only.
  cacheDir: join(caches, "ts-board"),
  test: { include: ["tests/**/*.test.ts"] },
});
