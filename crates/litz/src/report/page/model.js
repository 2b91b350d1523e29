// Answers what of a model belongs together: lines, operators, statements, steps, kernels.

const KINDS = ["sources", "nodes", "statements", "steps", "kernels"];

class Model {
  constructor(data) {
    Object.assign(this, data);
    this.nodesOfSource = this.sources.map(() => []);
    this.nodes.forEach((node, at) => node.source !== null && this.nodesOfSource[node.source].push(at));
    this.statementsOfNode = this.nodes.map(() => []);
    this.statements.forEach((statement, at) => statement.nodes.forEach((node) => this.statementsOfNode[node].push(at)));
    this.stepsOfStatement = this.statements.map(() => []);
    this.steps.forEach((step, at) => step.statements.forEach((statement) => this.stepsOfStatement[statement].push(at)));
    this.named = new Map();
    this.kernels.forEach((kernel, at) => this.remember("@" + kernel.name, "kernels", at));
    this.steps.forEach((step, at) => this.remember(step.name, "steps", at));
    this.statements.forEach((statement, at) => this.remember(statement.name, "statements", at));
    this.nodes.forEach((node, at) => this.remember("%" + node.name, "nodes", at));
    this.sources.forEach((source, at) => this.remember(JSON.stringify(source), "sources", at));
    this.total = this.kernels.reduce((sum, kernel) => sum + (kernel.ms || 0), 0);
  }

  remember(name, kind, at) {
    if (!this.named.has(name)) this.named.set(name, { kind, at });
  }

  // Everything that something was made of, and everything that was made of it: for each kind a set of positions.
  related({ kind, at }) {
    const found = Object.fromEntries(KINDS.map((kind) => [kind, new Set()]));
    found[kind].add(at);
    const add = (to, positions) => positions.forEach((position) => position !== null && found[to].add(position));
    const up = {
      kernels: (at) => add("steps", this.kernels[at].steps),
      steps: (at) => add("statements", this.steps[at].statements),
      statements: (at) => add("nodes", this.statements[at].nodes),
      nodes: (at) => add("sources", [this.nodes[at].source]),
    };
    const down = {
      sources: (at) => add("nodes", this.nodesOfSource[at]),
      nodes: (at) => add("statements", this.statementsOfNode[at]),
      statements: (at) => add("steps", this.stepsOfStatement[at]),
      steps: (at) => add("kernels", [this.steps[at].kernel]),
    };
    const from = KINDS.indexOf(kind);
    for (const kind of KINDS.slice(from)) if (down[kind]) found[kind].forEach(down[kind]);
    const before = KINDS.slice(0, from + 1).reverse();
    for (const kind of before) if (up[kind]) found[kind].forEach(up[kind]);
    return found;
  }

  // Milliseconds of a step: a launch of its kernel, on average.
  msOfStep(step) {
    const kernel = step.kernel === null || step.at_load ? null : this.kernels[step.kernel];
    return kernel && kernel.ms !== null && kernel.launches > 0 ? kernel.ms / kernel.launches : null;
  }

  // Milliseconds of the steps that do something for an operator, or for a line.
  msOfSteps(steps) {
    const times = [...steps].map((at) => this.msOfStep(this.steps[at])).filter((time) => time !== null);
    return times.length ? times.reduce((sum, time) => sum + time, 0) : null;
  }

  stepsOf(kind, at) {
    return this.related({ kind, at }).steps;
  }

  label({ kind, at }) {
    const item = this[kind][at];
    if (kind === "sources") return item;
    if (kind === "nodes") return `%${item.name}`;
    if (kind === "steps" && item.function) return `@${item.function} ${item.name}`;
    return item.name;
  }

  // Operators that something computes, each once, in a few words.
  operators(statements) {
    const names = new Set();
    for (const at of statements) {
      for (const node of this.statements[at].nodes) names.add(this.nodes[node].op.replace(/^aten\./, "").replace(/\.[^.]*$/, ""));
      if (!this.statements[at].nodes.length) names.add(this.statements[at].name);
    }
    return [...names];
  }

  // What bounds a kernel: `bytes`, `flops`, `neither`, or `unknown`.
  bound(kernel) {
    if (!kernel || kernel.ms === null) return "unknown";
    const [copy, peak] = [kernel.of_copy || 0, kernel.of_peak || 0];
    // A share that is not known may be the larger one.
    if (Math.max(copy, peak) < 0.5) return kernel.of_copy === null || kernel.of_peak === null ? "unknown" : "neither";
    return copy >= peak ? "bytes" : "flops";
  }
}
