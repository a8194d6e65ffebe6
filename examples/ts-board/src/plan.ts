export interface Card {
  id: string;
  title: string;
  days: number;
  after: string[];
}

export interface PlannedCard extends Card {
  start: number;
  end: number;
}

export class CycleError extends Error {
  constructor(readonly ids: string[]) {
    super(`these cards wait for each other: ${ids.join(", ")}`);
  }
}

/** Gives every card its earliest start, in days from now; ties keep the order of the board. */
export function plan(cards: Card[]): PlannedCard[] {
  const planned = new Map<string, PlannedCard>();
  let waiting = [...cards];
  while (waiting.length > 0) {
    const ready = waiting.filter((card) => card.after.every((id) => planned.has(id)));
    if (ready.length === 0) throw new CycleError(waiting.map((card) => card.id));
    for (const card of ready) {
      const start = Math.max(0, ...card.after.map((id) => planned.get(id)?.end ?? 0));
      planned.set(card.id, { ...card, start, end: start + card.days });
    }
    waiting = waiting.filter((card) => !planned.has(card.id));
  }
  return [...planned.values()].sort((a, b) => a.start - b.start);
}
