// Draws what is numbers and names: the overview, kernels, what was chosen, what was not fused, what the host runs.

function drawOverview(app) {
  const { model } = app;
  const { measured } = model;
  const peak = measured ? measured.peak : { flops: null, bandwidth: null };
  const compiling = model.stages.reduce((sum, stage) => sum + stage.ms, 0);
  const calls = model.steps.filter((step) => !step.at_load && step.kernel !== null && !step.function).length;
  const inside = model.steps.filter((step) => !step.at_load && step.kernel !== null && step.function).length;
  const tile = (number, what, id) => el("div", { class: "tile", id }, el("b", {}, number), el("span", {}, what));
  const hosts = model.hosts.reduce((sum, host) => sum + host.count, 0);
  return el("div", { id: "overview" },
    el("div", { class: "tiles" },
      measured && tile(ms(measured.ms.p50), `a call, the median of ${measured.calls}; 90 of 100 take at most ${ms(measured.ms.p90)}`, "call"),
      measured && tile(ms(measured.kernels_ms), `of it in kernels: ${percent(Math.min(1, measured.kernels_ms / measured.ms.p50))}`, "in-kernels"),
      tile(calls, `launches in a call; ${plural(model.kernels.length, "kernel")}, those at load among them${inside ? `, and ${inside} in functions that it may call` : ""}`, "launches"),
      measured && tile(bytes(model.call_bytes), `for results and what is between; ${bytes(model.kept_bytes)} kept from the load`, "bytes"),
      measured && tile(peak.bandwidth === null ? NONE : `${count(peak.bandwidth)}B/s`, peak.bandwidth === null ? "bandwidth: the machine's speed changed too much to measure it" : "that a copy moves on this machine"),
      measured && tile(peak.flops === null ? NONE : `${count(peak.flops)}FLOP/s`, peak.flops === null ? "peak: the machine's speed changed too much to measure it" : "of f32 that this machine computes at most"),
      tile(ms(compiling), "to compile, without any cache", "compiling"),
      tile(hosts, hosts ? `calls of ${plural(model.hosts.length, "operator")} that the host runs` : "operators left to the host", "host-calls")),
    !measured && el("p", { id: "unmeasured" }, `Nothing is timed: ${model.unmeasured}. Bytes and operations are estimates by the sizes that the model was exported with.`),
    model.unproved.length > 0 && el("p", {}, `${plural(model.unproved.length, "kernel")} given up for want of a proof: ${model.unproved.map(([nests, why]) => `${nests.join(" ")}: ${why}`).join("; ")}`));
}

const BOUNDS = { bytes: "near the speed of a copy", flops: "near the peak of operations", neither: "less than half of either", unknown: "not known" };

const boundKey = () => el("div", { class: "key" }, Object.entries(BOUNDS).map(([name, what]) => el("span", {}, el("i", { class: `of-${name}` }), what)));

function drawKernels(app) {
  const { model } = app;
  const order = model.kernels.map((_, at) => at).sort((a, b) => (model.kernels[b].ms || 0) - (model.kernels[a].ms || 0) || model.kernels[b].bytes - model.kernels[a].bytes);
  const rows = new Map();
  const row = (at) => {
    const kernel = model.kernels[at];
    const share = model.total > 0 && kernel.ms !== null ? kernel.ms / model.total : null;
    const statements = new Set(kernel.steps.flatMap((step) => model.steps[step].statements));
    const only = kernel.steps.length > 0 && kernel.steps.every((step) => model.steps[step].at_load);
    const drawn = el("tr", { "data-kernel": kernel.name },
      el("td", { class: "mono" }, app.link({ kind: "kernels", at })),
      num(only ? "at load" : kernel.launches), num(ms(kernel.ms)),
      el("td", { class: "bars" }, share !== null && [bar(share, `of-${model.bound(kernel)}`), ` ${percent(share)}`]),
      num(bytes(kernel.bytes)), num(count(kernel.flops)), num(percent(kernel.of_copy)), num(percent(kernel.of_peak)),
      el("td", {}, model.operators(statements).slice(0, 8).join(", ")));
    rows.set(at, drawn);
    return drawn;
  };
  const heads = ["kernel", ">launches", ">time", "share", ">bytes", ">operations", ">of copy", ">of peak", "computes"];
  const list = table(heads, order, row, { first: 15, id: "kernel-table" });
  app.onChoice(() => rows.forEach((drawn, at) => drawn.classList.toggle("chosen", !!app.chosen && app.chosen.kind === "kernels" && app.chosen.at === at)));
  return el("section", { id: "kernels" },
    el("h2", {}, "Kernels"),
    el("p", {}, "Times are of all launches in one call, bytes what has to be moved from and to memory, both directions. The column \u201cof copy\u201d sets them against what a copy moves, and exceeds 100 % where caches hold them; \u201cof peak\u201d sets operations against the f32 peak."),
    boundKey(), list);
}

// What was chosen: what it is, what it is made of and what was made of it.
function drawChosen(app) {
  const { model } = app;
  const box = el("section", { id: "chosen", hidden: true });
  const chips = (kind, positions) => {
    const all = [...positions].sort((a, b) => a - b);
    return el("div", { class: "chips mono" }, all.slice(0, 60).map((at) => app.link({ kind, at })), all.length > 60 && `and ${all.length - 60} more`, !all.length && el("span", { class: "empty" }, "none"));
  };
  function facts({ kind, at }) {
    const item = model[kind][at];
    if (kind === "nodes") return [["operator", `${item.op}${item.graph ? ` in @${item.graph}` : ""}`], ["result", item.type],
      ...(item.module ? [["module", item.module]] : []), ...(item.was && item.was !== item.name ? [["before passes", `%${item.was}`]] : [])];
    if (kind === "statements") return [[item.what.startsWith("routine") || item.what.startsWith("host") ? "runs" : "axes", item.what]];
    if (kind === "steps") {
      return [["time", item.at_load ? "runs once, at load" : `${ms(model.msOfStep(item))} a launch, on average`], ["parallel", item.grid || NONE],
        ["bytes, operations", `${bytes(item.bytes)}, ${count(item.flops)}`], ["takes at least", `${ms(item.least_ms)} on the target`]];
    }
    if (kind === "kernels") {
      return [["time", `${ms(item.ms)} in ${plural(item.launches, "launch")} of a call`], ["bytes, operations", `${bytes(item.bytes)}, ${count(item.flops)}`],
        ["of copy, of peak", `${percent(item.of_copy)}, ${percent(item.of_peak)}: ${BOUNDS[model.bound(item)]}`]];
    }
    return [["time of its kernels", ms(model.msOfSteps(model.stepsOf(kind, at)))]];
  }
  function refused(statements) {
    const names = new Set([...statements].map((at) => model.statements[at].name));
    const pairs = model.fusion.pairs.filter(([a, b, verdict]) => !model.fusion.verdicts[verdict].fused && (names.has(a) || names.has(b)));
    return pairs.slice(0, 8).map(([a, b, verdict, size]) => {
      const { name, sentence } = model.fusion.verdicts[verdict];
      return el("div", {}, app.named(a), " and ", app.named(b), `: ${bytes(size)}, ${name}. ${sentence}`);
    });
  }
  app.onChoice(() => {
    box.hidden = !app.chosen;
    if (!app.chosen) return;
    const related = model.related(app.chosen);
    const noun = { sources: "Line", nodes: "Operator", statements: "Statement", steps: "Step", kernels: "Kernel" }[app.chosen.kind];
    const lists = [["lines", "sources"], ["operators", "nodes"], ["statements", "statements"], ["steps", "steps"], ["kernels", "kernels"]];
    const kept = refused(related.statements);
    box.replaceChildren(
      el("h2", {}, `${noun} `, el("span", { class: "mono" }, model.label(app.chosen))),
      el("div", { class: "facts" },
        facts(app.chosen).map(([name, value]) => [el("span", {}, name), el("span", {}, value)]),
        lists.filter(([, kind]) => kind !== app.chosen.kind).map(([name, kind]) => [el("span", {}, name), chips(kind, related[kind])]),
        kept.length > 0 && [el("span", {}, "not fused"), el("div", {}, kept)]),
      el("div", { class: "tools" }, app.textLinks(app.chosen, related), el("button", { on: { click: () => app.choose(null) } }, "close")));
  });
  return box;
}

function drawFusion(app) {
  const { model } = app;
  const { verdicts, pairs, left_out } = model.fusion;
  const total = (fused) => verdicts.filter((verdict) => verdict.fused === fused).reduce((sum, verdict) => sum + verdict.bytes, 0);
  const bandwidth = model.measured && model.measured.peak.bandwidth;
  const cost = (size) => (bandwidth ? ms((1000 * size) / bandwidth) : NONE);
  const most = Math.max(1, ...verdicts.map((verdict) => verdict.bytes));
  let only = null;
  const list = el("div", {});
  const buttons = [];
  function draw() {
    buttons.forEach((button, at) => button.setAttribute("aria-pressed", at === only));
    const rows = pairs.filter(([, , at]) => (only === null ? !verdicts[at].fused : at === only));
    const pair = ([producer, consumer, at, size]) =>
      el("tr", { "data-pair": `${producer} ${consumer}` }, el("td", { class: "mono" }, app.named(producer), " → ", app.named(consumer)),
        el("td", {}, [producer, consumer].map((name) => app.operatorsOf(name)).join(" → ")), el("td", {}, verdicts[at].name), num(bytes(size)), num(cost(size)));
    list.replaceChildren(el("div", {},
      el("h3", {}, only === null ? "pairs that were refused" : `pairs: ${verdicts[only].name}`),
      rows.length ? table(["statements", "operators", "verdict", ">bytes", ">at a copy's speed"], rows, pair, { first: 10 }) : el("span", { class: "empty" }, "none"),
      left_out > 0 && el("p", {}, `${plural(left_out, "pair")} with the fewest bytes left out.`)));
  }
  const row = (verdict) => {
    const at = verdicts.indexOf(verdict);
    const button = el("button", { on: { click: () => { only = only === at ? null : at; draw(); } } }, verdict.name);
    buttons[at] = button;
    return el("tr", { "data-verdict": verdict.name }, el("td", {}, button), el("td", {}, verdict.sentence), num(verdict.pairs), num(bytes(verdict.bytes)),
      el("td", { class: "bars" }, bar(verdict.bytes / most, verdict.fused ? "of-flops" : "of-bytes")), num(cost(verdict.bytes)));
  };
  const all = verdicts.length ? table(["verdict", "why", ">pairs", ">bytes", "", ">at a copy's speed"], verdicts, row, { first: 40, id: "verdicts" }) : el("p", {}, "No pair of statements was considered.");
  draw();
  return el("section", { id: "fusion" },
    el("h2", {}, "What shares a kernel, and what does not"),
    el("p", {}, `A call does not store and load ${bytes(total(true))} for what was fused; it would not for another ${bytes(total(false))} that was refused. A statement that several kernels refused counts for each of them, though it could have joined only one.`),
    all, list);
}

function drawHosts(app) {
  const { model } = app;
  const row = (host) => el("tr", { "data-host": host.op }, el("td", { class: "mono" }, host.op), num(host.count), num(ms(host.ms)),
    el("td", { class: "mono chips" }, host.sources.map((source) => app.named(JSON.stringify(source), source))));
  return el("section", { id: "hosts" },
    el("h2", {}, "Operators that the host runs"),
    model.hosts.length
      ? [el("p", {}, "What Litz does not have is computed one operator at a time, without fusion, and waits for all before it."), table(["operator", ">calls", ">time of one", "lines"], model.hosts, row)]
      : el("p", {}, "None: Litz computes all of the model."));
}
