// Shows the text of each stage, a part at a time, with the names in it as links.

const LINES = 300;

// Strings, and names as the texts write them.
const TOKEN = /"(?:[^"\\]|\\.)*"|[%@]?[A-Za-z_][\w.]*/g;

// Where each stage says what something is.
const DEFINITION = {
  graph: { nodes: (name) => [`%${name}:`] },
  loops: { statements: (name) => [`nest ${name} `, `region ${name} `, `extern ${name} `, `${name} =`] },
  schedule: { steps: (name) => [`kernel ${name} `, `extern ${name}`] },
  kernel: { kernels: (name) => [`kernel @${name} `] },
  program: { kernels: (name) => [`launch @${name}(`] },
};

function drawTexts(app) {
  const { model } = app;
  const texts = new Map(model.texts.map(({ stage, text, left_out }) => [stage, { lines: text.split("\n"), left_out }]));
  let [stage, start, found] = ["graph", 0, -1];
  const lines = el("pre", { id: "text-lines", tabindex: 0 });
  const status = el("span", { class: "empty" });
  const find = el("input", { type: "search", placeholder: "find in this text", on: { keydown: (event) => event.key === "Enter" && search() } });
  const tabs = [...texts.keys()].map((name) => el("button", { "data-stage-tab": name, on: { click: () => show(name, 0) } }, name));
  const [earlier, later] = [el("button", { on: { click: () => show(stage, start - LINES) } }, "earlier"), el("button", { on: { click: () => show(stage, start + LINES) } }, "later")];

  function linked(line) {
    const parts = [];
    let end = 0;
    for (const match of line.matchAll(TOKEN)) {
      const target = model.named.get(match[0]) || (stage !== "graph" && model.named.get(`%${match[0]}`));
      if (!target) continue;
      parts.push(line.slice(end, match.index), app.link(target, match[0]));
      end = match.index + match[0].length;
    }
    return [...parts, line.slice(end)];
  }

  function show(name, from, mark = -1) {
    const text = texts.get(name);
    [stage, start, found] = [name, Math.max(0, Math.min(from, text.lines.length - 1)), mark];
    tabs.forEach((tab) => tab.setAttribute("aria-pressed", tab.textContent === name));
    const part = text.lines.slice(start, start + LINES);
    lines.replaceChildren(...part.map((line, at) => el("span", { class: `line${start + at === found ? " found" : ""}` },
      el("span", { class: "number" }, start + at + 1), linked(line.length > 2000 ? `${line.slice(0, 2000)} ...` : line))));
    lines.dataset.stage = name;
    lines.scrollTop = 0;
    const marked = lines.querySelector(".found");
    if (marked) lines.scrollTop = marked.offsetTop - lines.offsetTop - 60;
    earlier.hidden = start === 0;
    later.hidden = start + LINES >= text.lines.length;
    const cut = text.left_out ? `; ${text.left_out} more are not on this page: litz compile MODEL --to ${name}` : "";
    status.textContent = `${plural(text.lines.filter(Boolean).length, "line")}${cut}`;
  }

  function search() {
    const word = find.value.toLowerCase();
    const all = texts.get(stage).lines;
    const matches = (line) => line.toLowerCase().includes(word);
    const after = all.findIndex((line, at) => at > found && matches(line));
    const at = after >= 0 ? after : all.findIndex(matches);
    if (!word || at < 0) status.textContent = word ? "not found" : "";
    else show(stage, Math.floor(at / LINES) * LINES, at);
  }

  // Where the text of a stage says what something is; none where it is not said, or not on the page.
  app.placeIn = (name, { kind, at }) => {
    const begins = DEFINITION[name][kind];
    if (!begins) return -1;
    const words = begins(model[kind][at].name);
    return texts.get(name).lines.findIndex((line) => words.some((word) => line.trimStart().startsWith(word) || line.trimEnd() === word.trimEnd()));
  };
  app.showText = (name, at) => {
    show(name, Math.floor(at / LINES) * LINES, at);
    document.getElementById("texts").scrollIntoView();
  };
  show("graph", 0);
  return el("section", { id: "texts" }, el("h2", {}, "The text of each stage"),
    el("p", {}, "Names are links to what they are. Each text can be written down, edited and compiled: see litz compile."),
    el("div", { class: "tools" }, tabs, find, earlier, later, status), lines);
}
