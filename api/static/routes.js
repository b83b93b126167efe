// The tabs of the page and their addresses: #state, or #partitions/3 for one partition. Pure.

export const TABS = [
  ["overview", "Overview"], ["partitions", "Partitions"], ["state", "State"], ["dead-letters", "Dead letters"],
  ["snapshots", "Snapshots"], ["history", "History"], ["operations", "Operations"],
];

// What the address shows: a tab, and perhaps the number of a partition.
export function route(hash) {
  const [name, number] = hash.replace(/^#/, "").split("/");
  const tab = TABS.some(([id]) => id === name) ? name : "overview";
  return { tab, number: /^\d+$/.test(number ?? "") ? Number(number) : null };
}

export const href = (tab, number = null) => `#${tab}${number === null ? "" : `/${number}`}`;
