import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { plan, type Card } from "./plan.js";

const board = JSON.parse(readFileSync(new URL("../board.json", import.meta.url), "utf8")) as {
  cards: Card[];
};
const planned = plan(board.cards);
for (const card of planned) {
  const bar = " ".repeat(card.start) + "#".repeat(card.days);
  console.log(`${card.title.padEnd(22)} ${bar}`);
}
const output = join(process.env.WORKSPACE ?? process.cwd(), "plan.json");
writeFileSync(output, JSON.stringify(planned, null, 2) + "\n");
console.log("wrote plan.json");
