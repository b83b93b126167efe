// The rates of records and of input offsets, from the differences between two answers.

const WINDOW_MS = 10_000;

const COUNTERS = ["records_total", "skipped_total", "outputs_total"];
const OF_INPUT = ["handled_total", "handler_seconds_total"];

export class Rates {
  #before = new Map(); // partition → its last answer
  #sums = []; // of each answer: when it came, how long after the one before, and what was added

  // Call with each answer. Another owner counts from zero: its first answer adds nothing.
  look(partitions, nowMs) {
    const added = new Map();
    const add = (name, by) => added.set(name, (added.get(name) ?? 0) + Math.max(by, 0));
    for (const each of partitions) {
      const before = this.#before.get(each.partition);
      if (before?.process_id !== each.process_id) continue;
      for (const name of COUNTERS) add(name, (each[name] ?? 0) - (before[name] ?? 0));
      for (const input of each.inputs) {
        const was = before.inputs.find(({ topic }) => topic === input.topic);
        if (!was) continue;
        add(`input ${input.topic}`, input.position - was.position);
        for (const name of OF_INPUT) add(`${name} ${input.topic}`, (input[name] ?? 0) - (was[name] ?? 0));
      }
    }
    const last = this.#sums.at(-1)?.at;
    this.#sums.push({ at: nowMs, tookMs: last === undefined ? 0 : nowMs - last, added });
    this.#sums = this.#sums.filter(({ at }) => nowMs - at <= WINDOW_MS);
    this.#before = new Map(partitions.map((each) => [each.partition, each]));
  }

  // Per second, over the last ten seconds; null: two answers are needed.
  of(name) {
    const tookMs = this.#sums.reduce((sum, each) => sum + each.tookMs, 0);
    if (!tookMs) return null;
    return (this.#sums.reduce((sum, each) => sum + (each.added.get(name) ?? 0), 0) / tookMs) * 1000;
  }
}
