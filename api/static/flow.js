// The lines between the nodes of the topology. What flows is a dashed line that moves.

const NAMESPACE = "http://www.w3.org/2000/svg";

class FlowLines extends HTMLElement {
  #edges = [];
  #svg = document.createElementNS(NAMESPACE, "svg");
  #resized = new ResizeObserver(() => this.#draw());

  // Each edge: the nodes that it joins, and the rate of what flows (null: not known).
  set edges(edges) {
    this.#edges = edges;
    this.#draw();
  }

  connectedCallback() {
    this.setAttribute("aria-hidden", "true");
    this.append(this.#svg);
    this.#resized.observe(this.parentElement);
  }

  disconnectedCallback() {
    this.#resized.disconnect();
  }

  #draw() {
    if (!this.isConnected) return;
    const origin = this.getBoundingClientRect();
    const nodes = new Map([...this.parentElement.querySelectorAll("[data-node]")].map((each) => [each.dataset.node, each.getBoundingClientRect()]));
    const lines = this.#edges.filter(({ from, to }) => nodes.has(from) && nodes.has(to));
    while (this.#svg.childElementCount > lines.length) this.#svg.lastElementChild.remove();
    while (this.#svg.childElementCount < lines.length) this.#svg.append(document.createElementNS(NAMESPACE, "path"));
    lines.forEach(({ from, to, rate }, index) => {
      const [a, b] = [nodes.get(from), nodes.get(to)];
      const [x, y] = [a.right - origin.left, a.top + a.height / 2 - origin.top];
      const [toX, toY] = [b.left - origin.left, b.top + b.height / 2 - origin.top];
      const bend = (toX - x) / 2;
      const path = this.#svg.children[index];
      path.setAttribute("d", `M${x} ${y} C${x + bend} ${y} ${toX - bend} ${toY} ${toX} ${toY}`);
      path.setAttribute("class", rate ? "flows" : "");
    });
  }
}
customElements.define("flow-lines", FlowLines);
