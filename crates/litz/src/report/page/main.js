// Puts the page together: what is chosen, where links lead, and which model is shown.

class App {
  constructor(model) {
    this.model = model;
    this.chosen = null;
    this.listeners = [];
  }

  onChoice(run) {
    this.listeners.push(run);
  }

  choose(what) {
    this.chosen = what;
    this.listeners.forEach((run) => run());
    history.replaceState(null, "", what ? `#${what.kind}=${encodeURIComponent(this.model[what.kind][what.at].name || this.model.label(what))}` : "#");
    if (what) document.getElementById("chosen").scrollIntoView({ block: "nearest" });
  }

  link(target, text) {
    const label = text || this.model.label(target);
    return el("button", { class: "link", title: this.model.label(target), on: { click: () => this.choose(target) } }, label);
  }

  // A name as a link, where it is one of something.
  named(name, text) {
    const target = this.model.named.get(name);
    return target ? this.link(target, text || name) : el("span", {}, text || name);
  }

  operatorsOf(name) {
    const target = this.model.named.get(name);
    return target && target.kind === "statements" ? this.model.operators([target.at]).join(", ") : name;
  }

  // Buttons that show where the texts say what was chosen.
  textLinks(chosen, related) {
    const first = (kind) => (chosen.kind === kind ? chosen.at : [...related[kind]].sort((a, b) => a - b)[0]);
    const places = Object.entries({ graph: "nodes", loops: "statements", schedule: "steps", kernel: "kernels", program: "kernels" });
    return places.map(([stage, kind]) => {
      const at = first(kind);
      const line = at === undefined ? -1 : this.placeIn(stage, { kind, at });
      return line >= 0 && el("button", { on: { click: () => this.showText(stage, line) } }, `in ${stage}`);
    });
  }
}

function showModel(data, place) {
  const app = new App(new Model(data));
  // Texts first: others ask it for places in them.
  const texts = drawTexts(app);
  const chosen = drawChosen(app);
  place.replaceChildren(drawOverview(app), drawMap(app), chosen, drawCall(app), drawKernels(app), drawFusion(app), drawMemory(app), drawStages(app), drawHosts(app), texts);
  return app;
}

function start() {
  const data = JSON.parse(document.getElementById("data").textContent);
  const page = document.getElementById("page");
  document.title = `${data.title} - Litz`;
  const place = el("div", { id: "model" });
  const about = el("p", { id: "about" });
  let app = null;
  const show = (at) => {
    const model = data.models[at];
    about.textContent = `@${model.name} for ${model.target}, compiled by Litz ${data.litz}${model.measured ? `; timed with inputs that are ${model.measured.inputs}` : ""}`;
    app = showModel(model, place);
  };
  const choose = el("select", { id: "models", "aria-label": "graph", on: { change: (event) => show(Number(event.target.value)) } },
    data.models.map((model, at) => el("option", { value: at }, `graph ${at + 1} of ${data.models.length}: ${model.title || model.name}`)));
  const sections = { map: "map", steps: "a call", kernels: "kernels", fusion: "fusion", memory: "memory", stages: "compilation", hosts: "host", texts: "texts" };
  fill(page, {}, [el("h1", {}, data.title), about, data.notes.map((note) => el("p", { class: "note" }, note)),
    el("nav", {}, data.models.length > 1 && choose, Object.entries(sections).map(([id, name]) => el("a", { href: `#${id}` }, name))), place]);
  if (!data.models.length) return;
  show(0);
  // #kernels=k3 chooses, #text=loops shows a text, #find=layers.3.mlp looks for a word in the map.
  const [kind, name] = decodeURIComponent(location.hash.slice(1)).split("=");
  if (kind === "text" && DEFINITION[name]) app.showText(name, 0);
  else if (kind === "find" && name) app.find(name);
  else if (KINDS.includes(kind)) {
    const at = app.model[kind].findIndex((item) => (kind === "sources" ? item : item.name) === name);
    if (at >= 0) app.choose({ kind, at });
  }
}

start();
