// Draws what is best seen: the steps of a call in time, memory over these steps, and the stages of the compilation.

const WIDTH = 1200;

// Steps of a call that are drawn one by one at most; of more, the longest.
const MOST_STEPS = 3000;

function drawCall(app) {
  const { model } = app;
  const steps = model.steps.map((step, at) => ({ step, at })).filter(({ step }) => !step.at_load && !step.function);
  const is_timed = steps.some(({ step }) => model.msOfStep(step) !== null);
  const weight = (step) => (is_timed ? model.msOfStep(step) || 0 : step.least_ms || 1);
  const total = steps.reduce((sum, { step }) => sum + weight(step), 0) || 1;
  const drawing = svg("svg", { class: "plot", id: "call-plot", viewBox: `0 0 ${WIDTH} 58`, preserveAspectRatio: "none", role: "img", "aria-label": "steps of a call" });
  let x = 0;
  const least = steps.length > MOST_STEPS ? steps.map(({ step }) => weight(step)).sort((a, b) => b - a)[MOST_STEPS] : -1;
  for (const { step, at } of steps) {
    const width = (WIDTH * weight(step)) / total;
    if (weight(step) > least && width > 0) {
      const kernel = step.kernel === null ? null : model.kernels[step.kernel];
      const title = `${step.name}: ${ms(model.msOfStep(step))}, ${bytes(step.bytes)}, ${count(step.flops)} operations: ${model.operators(step.statements).join(", ")}`;
      drawing.append(svg("rect", { class: `step of-${model.bound(kernel)}`, "data-step": step.name, x: x.toFixed(2), y: 4, width: Math.max(width, 0.3).toFixed(2), height: 50,
        on: { click: () => app.choose({ kind: "steps", at }) } }, svg("title", {}, title)));
    }
    x += width;
  }
  const what = is_timed ? "Its steps in order, as wide as their launches take on average" : "Its steps in order, as wide as the target needs at least";
  return el("section", { id: "steps" }, el("h2", {}, "A call"), el("p", {}, `${what}; choose one to see what it is.`), drawing, boundKey());
}

// Numbers for an axis up to a value: 0 and a few more.
function ticks(most) {
  const step = 10 ** Math.floor(Math.log10(most || 1));
  const by = [0.2, 0.5, 1, 2].map((part) => part * step).find((part) => most / part <= 5) || step;
  return Array.from({ length: Math.floor(most / by) + 1 }, (_, at) => at * by);
}

function drawMemory(app) {
  const { model } = app;
  const { steps, pools, places, in_use, reserved, left_out } = model.memory;
  const head = [el("h2", {}, "Memory over a call"),
    el("p", {}, "What is between steps and what is returned, by the sizes that the model was exported with. Arguments and weights are not among it, nor what functions take that the call may call.")];
  if (!steps || !pools.length) return el("section", { id: "memory" }, head, el("p", {}, "A call allocates nothing."));
  const [left, top, height] = [78, 8, 150];
  const x = (step) => left + ((WIDTH - left - 8) * step) / steps;
  const most = Math.max(1, ...in_use, ...reserved);
  const y = (size) => top + height * (1 - size / most);
  const stairs = (values) => values.map((value, at) => `L${x(at).toFixed(1)} ${y(value).toFixed(1)}L${x(at + 1).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  const plot = svg("svg", { class: "plot", id: "memory-plot", viewBox: `0 0 ${WIDTH} ${height + 34}`, role: "img", "aria-label": "bytes in use at each step" });
  const unit = 1024 ** Math.floor(Math.log(most) / Math.log(1024));
  for (const tick of ticks(most / unit)) {
    plot.append(svg("line", { class: "axis", x1: left, x2: WIDTH - 8, y1: y(tick * unit), y2: y(tick * unit) }),
      svg("text", { x: left - 6, y: y(tick * unit) + 4, "text-anchor": "end" }, bytes(tick * unit)));
  }
  plot.append(svg("path", { class: "used", d: `M${left} ${y(0)}${stairs(in_use)}L${x(steps)} ${y(0)}Z` }), svg("path", { class: "reserved", d: stairs(reserved).replace("L", "M") }),
    svg("text", { x: left, y: height + 28 }, "first step"), svg("text", { x: WIDTH - 8, y: height + 28, "text-anchor": "end" }, `step ${steps}`));
  // Pools above each other, as high as they are large, but none too thin to be seen.
  const all = pools.reduce((sum, pool) => sum + pool.bytes, 0) || 1;
  const heights = pools.map((pool) => Math.max(10, (260 * pool.bytes) / all));
  const tops = heights.map((_, at) => 6 + heights.slice(0, at).reduce((sum, height) => sum + height + 6, 0));
  const drawn = tops.filter((top) => top < 900).length;
  const end = tops[drawn - 1] + heights[drawn - 1] + 8;
  const inside = svg("svg", { class: "plot", id: "places-plot", viewBox: `0 0 ${WIDTH} ${end.toFixed(0)}`, role: "img", "aria-label": "what lies where, at each step" });
  pools.slice(0, drawn).forEach((pool, at) => inside.append(
    svg("rect", { x: left, y: tops[at], width: WIDTH - left - 8, height: heights[at], fill: "none", class: "axis" }),
    svg("text", { x: left - 6, y: tops[at] + Math.min(heights[at] / 2 + 4, 14), "text-anchor": "end" }, pool.name.length > 11 ? `${pool.name.slice(0, 10)}…` : pool.name,
      svg("title", {}, `${pool.name}: ${bytes(pool.bytes)}`))));
  const colours = ["bytes", "flops", "neither"];
  places.forEach((place, at) => {
    if (place.pool >= drawn) return;
    const { bytes: size } = pools[place.pool];
    const scale = heights[place.pool] / (size || 1);
    inside.append(svg("rect", { class: `place of-${colours[at % colours.length]}`, "data-place": place.name, x: x(place.from).toFixed(1), y: (tops[place.pool] + place.offset * scale).toFixed(1),
      width: Math.max(1, x(place.to + 1) - x(place.from)).toFixed(1), height: Math.max(1, place.bytes * scale).toFixed(1) },
    svg("title", {}, `${place.name}: ${bytes(place.bytes)} at ${place.offset} of ${pools[place.pool].name}, steps ${place.from + 1} to ${place.to + 1}`)));
  });
  return el("section", { id: "memory" }, head,
    el("div", { class: "key" }, el("span", {}, el("i", { style: "background:var(--accent);opacity:.4" }), `in use, at most ${bytes(Math.max(...in_use))}`),
      el("span", {}, el("i", { style: "border:1px dashed var(--muted)" }), `allocated, ${bytes(Math.max(...reserved))}`)),
    plot, el("h3", {}, "what lies where"), inside,
    (left_out > 0 || drawn < pools.length) && el("p", {}, `Not drawn: ${plural(left_out, "small buffer")}, ${plural(pools.length - drawn, "allocation")}.`));
}

function drawStages(app) {
  const { model } = app;
  const total = model.stages.reduce((sum, stage) => sum + stage.ms, 0) || 1;
  const groups = new Map();
  for (const stage of model.stages) groups.set(stage.of, (groups.get(stage.of) || 0) + stage.ms);
  const passes = new Map();
  for (const { name, of, ms } of model.stages) {
    const key = `${of} ${name}`;
    passes.set(key, { name, of, ms: (passes.has(key) ? passes.get(key).ms : 0) + ms });
  }
  const rows = [...passes.values()].sort((a, b) => b.ms - a.ms);
  const row = ({ name, of, ms: time }) => el("tr", { "data-stage": name }, el("td", { class: "mono" }, name), el("td", {}, of), num(ms(time)),
    el("td", { class: "bars" }, bar(time / total), ` ${percent(time / total)}`));
  return el("section", { id: "stages" }, el("h2", {}, "Compilation"),
    el("p", {}, `${ms(total)} without any cache: ${[...groups].map(([of, time]) => `${of} ${ms(time)}`).join(", ")}.`),
    table(["stage or pass", "works on", ">time", "share"], rows, row, { first: 10, id: "stage-table" }));
}
