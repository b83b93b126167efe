// A partition that gets another owner moves there, so that the eye can follow a takeover.

const isStill = matchMedia("(prefers-reduced-motion: reduce)");

const places = (root) => new Map([...root.querySelectorAll("[data-moves]")].map((each) => [each.dataset.moves, each]));

export function moving(root, draw) {
  if (isStill.matches) return draw();
  const before = new Map([...places(root)].map(([name, each]) => [name, [each.closest("[data-lane]"), each.getBoundingClientRect()]]));
  draw();
  for (const [name, element] of places(root)) {
    const [lane, was] = before.get(name) ?? [];
    if (!lane || lane === element.closest("[data-lane]")) continue;
    const is = element.getBoundingClientRect();
    element.animate([
      { transform: `translate(${was.left - is.left}px, ${was.top - is.top}px)`, zIndex: 1 }, { transform: "none", zIndex: 1 },
    ], { duration: 900, easing: "cubic-bezier(.3, 1.3, .5, 1)" });
  }
}
