// Draws the map: lines, operators and steps side by side, with what belongs together connected.

const ROWS = 40;

function drawMap(app) {
  const { model } = app;
  const columns = [
    { kind: "sources", title: "your lines", rows: model.sources.map((_, at) => at) },
    { kind: "nodes", title: "operators", rows: model.nodes.map((_, at) => at) },
    { kind: "steps", title: "kernels and calls", rows: model.steps.map((_, at) => at) },
  ];
  const times = new Map();
  const timeOf = (kind, at) => {
    const key = `${kind} ${at}`;
    if (!times.has(key)) times.set(key, kind === "steps" ? model.msOfStep(model.steps[at]) : model.msOfSteps(model.stepsOf(kind, at)));
    return times.get(key);
  };
  const map = el("div", { class: "map", id: "map-rows" });
  const slider = el("input", { type: "range", min: 0, max: 1000, value: 0, "aria-label": "position", on: { input: draw } });
  const find = el("input", { type: "search", placeholder: "find a line, an operator, a module, a kernel", on: { input: draw } });
  const clear = el("button", { on: { click: () => app.choose(null) } }, "show all");
  const shown = el("span", { class: "empty" });

  function text(kind, at) {
    const item = model[kind][at];
    if (kind === "sources") return item;
    if (kind === "nodes") return `${item.op} %${item.name} ${item.type} ${item.module ?? ""}`;
    return `${model.label({ kind, at })} ${model.operators(item.statements).join(" ")}`;
  }

  // Which rows of each column are of interest: all, those found, or those that belong to what is chosen.
  function wanted() {
    const word = find.value.trim().toLowerCase();
    if (app.chosen && !word) {
      const related = model.related(app.chosen);
      return columns.map(({ kind, rows }) => rows.filter((at) => related[kind].has(at)));
    }
    if (!word) return columns.map(({ rows }) => rows);
    const found = columns.map(() => new Set());
    columns.forEach(({ kind, rows }) => {
      for (const at of rows) {
        if (!text(kind, at).toLowerCase().includes(word)) continue;
        const related = model.related({ kind, at });
        columns.forEach((column, place) => related[column.kind].forEach((other) => found[place].add(other)));
        if (found.every((set) => set.size > 10 * ROWS)) break;
      }
    });
    return columns.map(({ rows }, place) => rows.filter((at) => found[place].has(at)));
  }

  function row(kind, at) {
    const item = model[kind][at];
    const time = timeOf(kind, at);
    const share = model.total > 0 && time !== null ? time / model.total : 0;
    const [main, rest] =
      kind === "sources" ? [item, model.nodesOfSource[at].length ? "" : "nothing is left of it"]
      : kind === "nodes" ? [item.op.replace(/^aten\./, ""), `%${item.name}: ${item.type}${item.module ? ` in ${item.module}` : ""}`]
      : [model.label({ kind, at }), model.operators(item.statements).join(", ")];
    const is = app.chosen && app.chosen.kind === kind && app.chosen.at === at;
    return el("button", {
      class: `row${is ? " chosen" : ""}`, "data-kind": kind, "data-name": model.label({ kind, at }), title: `${main}  ${rest}`,
      on: { click: () => app.choose(is ? null : { kind, at }) },
    },
      share > 0 && el("span", { class: "fill", style: `width:${(100 * Math.min(1, share)).toFixed(1)}%` }),
      el("span", { class: "main mono" }, main), el("span", { class: "rest mono" }, rest),
      el("span", { class: "end" }, kind === "steps" && item.at_load ? "at load" : time === null ? "" : ms(time)));
  }

  function draw() {
    const all = wanted();
    const place = slider.value / 1000;
    const parts = all.map((rows) => {
      const start = Math.round(place * Math.max(0, rows.length - ROWS));
      return rows.slice(start, start + ROWS);
    });
    slider.hidden = all.every((rows) => rows.length <= ROWS);
    clear.hidden = !app.chosen;
    shown.textContent = all.map((rows, at) => (rows.length > ROWS ? `${parts[at].length} of ${rows.length} ${columns[at].title}` : "")).filter(Boolean).join(", ");
    const lists = columns.map(({ kind, title }, place) =>
      el("div", {}, el("h3", {}, `${title} (${all[place].length})`), parts[place].map((at) => row(kind, at))));
    map.replaceChildren(...lists, el("div"));
    map.lastChild.replaceWith(edges(parts));
  }

  function edges(parts) {
    const drawing = svg("svg", { "aria-hidden": true });
    const width = map.clientWidth || 1240;
    const unit = (width - 180) / 3.3;
    const [right, left] = [[unit, unit + 90 + 1.15 * unit], [unit + 90, 2.15 * unit + 180]];
    const places = parts.map((part) => new Map(part.map((at, place) => [at, 26 * (place + 1.5)])));
    const line = (from, to, gap) => {
      const [x, y, end] = [right[gap], places[gap].get(from), left[gap]];
      const [middle, below] = [(x + end) / 2, places[gap + 1].get(to)];
      drawing.append(svg("path", { class: "edge", d: `M${x} ${y}C${middle} ${y} ${middle} ${below} ${end} ${below}` }));
    };
    for (const node of parts[1]) {
      const { source } = model.nodes[node];
      if (source !== null && places[0].has(source)) line(source, node, 0);
      const steps = new Set(model.statementsOfNode[node].flatMap((statement) => model.stepsOfStatement[statement]));
      for (const step of steps) if (places[2].has(step)) line(node, step, 1);
    }
    return drawing;
  }

  app.find = (word) => {
    find.value = word;
    draw();
  };
  app.onChoice(draw);
  let width = 0;
  new ResizeObserver(() => {
    // Its height is that of what it draws.
    if (map.clientWidth !== width) {
      width = map.clientWidth;
      draw();
    }
  }).observe(map);
  draw();
  return el("section", { id: "map" },
    el("h2", {}, "From lines to kernels"),
    el("p", {}, "Choose a row to see what it became, or what it was made of. A blue line is a row's part of the time of all kernels: a line counts what its kernels take together, also where they compute other lines' operators."),
    el("div", { class: "tools" }, find, clear, slider, shown), map);
}
