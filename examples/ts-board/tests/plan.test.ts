import { describe, expect, it } from "vitest";
import { CycleError, plan, type Card } from "../src/plan.js";

const card = (id: string, days: number, ...after: string[]): Card => ({ id, title: id, days, after });

describe("plan", () => {
  it("starts a card when the last one before it ends", () => {
    const planned = plan([card("c", 1, "a", "b"), card("a", 2), card("b", 5)]);
    expect(planned.map(({ id, start, end }) => [id, start, end])).toEqual([
      ["a", 0, 2],
      ["b", 0, 5],
      ["c", 5, 6],
    ]);
  });

  it("plans nothing for an empty board", () => {
    expect(plan([])).toEqual([]);
  });

  it("names the cards of a cycle", () => {
    expect(() => plan([card("a", 1, "b"), card("b", 1, "a"), card("c", 1)])).toThrow(CycleError);
    expect(() => plan([card("a", 1, "b"), card("b", 1, "a")])).toThrow("a, b");
  });
});
