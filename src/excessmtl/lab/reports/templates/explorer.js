// One run step by step, and a second one to compare with: the first solid, the second dashed, a colour per task.
const TASK_COLOURS = 8;
const FIRST_TASKS = 8; // shown at the start; the others are one click away
const PANELS = [
  { key: "weights", title: "weights", none: "single-task networks have none, or the run did not keep them" },
  { key: "losses", title: "losses", none: "the run did not keep them", canBeLog: true },
  { key: "excess_risks", title: "excess risks", none: "this method estimates none, or the run did not keep them", canBeLog: true },
];

const byId = (id) => document.getElementById(id);
const distinct = (values) => [...new Set(values)];

// What was chosen stays chosen where it is still on offer; a select that was empty starts at `first`.
function fill(select, choices, first = "") {
  const before = select.value || first;
  select.replaceChildren(...choices.map(({ value, text }) => new Option(text, value)));
  if (choices.some(({ value }) => String(value) === before)) select.value = before;
}

const same = (values) => distinct(values).map((value) => ({ value, text: value }));

// Runs by what tells them apart: the seed, and the folder where a folder of runs holds the same run twice.
function bySeed(runs) {
  const twice = runs.length > distinct(runs.map((run) => run.seed)).length;
  return new Map(runs.map((run) => [twice ? `${run.seed} (${run.folder})` : String(run.seed), run]));
}

function startExplorer(data, runs) {
  const settings = distinct(runs.map((run) => run.setting));
  const first = byId("run-setting");
  fill(first, settings.map((index) => ({ value: index, text: settingName(data.settings, index) })));
  let tasks = new Set();

  function here() {
    return runs.filter((run) => run.setting === Number(first.value));
  }

  function chooseRun(prefix, optional) {
    const [label, noise, seed] = ["label", "noise", "seed"].map((part) => byId(`${prefix}-${part}`));
    const nothing = optional ? [{ value: "", text: "nothing" }] : [];
    const labels = data.labels.filter((name) => here().some((run) => run.label === name));
    fill(label, [...nothing, ...same(labels)]);
    const ofMethod = here().filter((run) => run.label === label.value);
    fill(noise, same(ofMethod.map((run) => run.noise)), byId("run-noise").value);
    const seeds = bySeed(ofMethod.filter((run) => String(run.noise) === noise.value));
    fill(seed, same([...seeds.keys()]), byId("run-seed").value);
    noise.disabled = seed.disabled = label.value === "";
    return seeds.get(seed.value);
  }

  function offerTasks() {
    const { tasks: names, noisyTasks } = data.settings[first.value];
    tasks = new Set(names.slice(0, FIRST_TASKS).map((_, index) => index));
    const chips = names.map((name, index) => {
      const chip = document.createElement("button");
      chip.type = "button";
      chip.className = "chip";
      chip.setAttribute("aria-pressed", tasks.has(index));
      const key = document.createElement("span");
      key.className = `key t${index % TASK_COLOURS}`;
      chip.append(key, noisyTasks.includes(name) ? `${name} (noisy)` : name);
      chip.addEventListener("click", () => {
        toggle(chip) ? tasks.add(index) : tasks.delete(index);
        show();
      });
      return chip;
    });
    byId("run-tasks").replaceChildren(...chips);
  }

  function chooseTasks(all) {
    tasks = new Set(all ? data.settings[first.value].tasks.keys() : []);
    for (const chip of byId("run-tasks").children) chip.setAttribute("aria-pressed", all);
    show();
  }

  function show() {
    const pair = [chooseRun("run", false), chooseRun("other", true)].filter(Boolean);
    byId("run-facts").textContent = pair.map(facts).join("; compared with ");
    drawPanels(data.settings[first.value], pair, [...tasks].sort((a, b) => a - b), byId("log-scale").checked);
  }

  first.addEventListener("change", () => {
    offerTasks();
    show();
  });
  for (const select of document.querySelectorAll("#explorer select:not(#run-setting), #log-scale")) select.addEventListener("change", show);
  byId("all-tasks").addEventListener("click", () => chooseTasks(true));
  byId("no-tasks").addEventListener("click", () => chooseTasks(false));
  offerTasks();
  chooseRun("run", false);
  // The noisiest run says most about a method.
  byId("run-noise").selectedIndex = byId("run-noise").length - 1;
  show();
}

// The same benchmark may be there on different data.
function settingName(settings, index) {
  const { benchmark, source } = settings[index];
  return settings.filter((other) => other.benchmark === benchmark).length > 1 ? `${benchmark} (${source})` : benchmark;
}

function facts(run) {
  const mean = run.steps > run.points ? `, each point the mean of about ${Math.round(run.steps / run.points)}` : "";
  return `${run.label}, noise ${run.noise}, seed ${run.seed}: ${run.steps} steps${mean}`;
}

function drawPanels(setting, pair, tasks, log) {
  const panels = [
    ...PANELS.map((panel) => stepPanel(panel, setting, pair, tasks, log)),
    ...distinct(setting.metrics).map((metric) => scorePanel(metric, setting, pair, tasks)),
  ];
  const box = byId("run-figures");
  while (box.children.length > panels.length) {
    const last = box.lastElementChild;
    forget(last.querySelector(".plot"));
    last.remove();
  }
  while (box.children.length < panels.length) box.append(emptyPanel());
  panels.forEach((panel, index) => showPanel(box.children[index], panel));
}

function emptyPanel() {
  const figure = document.createElement("figure");
  figure.className = "card";
  const [caption, message, plot] = ["figcaption", "p", "div"].map((kind) => document.createElement(kind));
  message.className = "empty";
  plot.className = "plot";
  plot.setAttribute("role", "img");
  figure.append(caption, message, plot);
  return figure;
}

function showPanel(figure, { title, message, traces, axes }) {
  const [caption, text, plot] = figure.children;
  caption.textContent = title;
  text.textContent = message;
  text.hidden = message === "";
  plot.hidden = message !== "";
  plot.setAttribute("aria-label", `${title} of the chosen run, one curve per task`);
  if (message === "") draw(plot, () => ({ traces: traces(), layout: layout(...axes()) }));
  else forget(plot);
}

function stepPanel({ key, title, none, canBeLog }, setting, pair, tasks, log) {
  const having = pair.filter((run) => run.curves[key] !== null);
  return {
    title,
    message: having.length ? "" : `No ${title}: ${none}.`,
    axes: () => [axis("step"), axis("", canBeLog && log ? { type: "log" } : {})],
    traces: () =>
      having.flatMap((run) => {
        const steps = run.curves[key][0].map((_, index) => ((index + 0.5) * run.steps) / run.points + 0.5);
        return tasks.map((task) => taskCurve(setting, run, pair, task, steps, run.curves[key][task], "step %{x:.0f}"));
      }),
  };
}

function scorePanel(metric, setting, pair, tasks) {
  const own = tasks.filter((task) => setting.metrics[task] === metric);
  const last = Math.max(...pair.flatMap((run) => run.epochs));
  return {
    title: `test ${metric}`,
    message: pair.some((run) => run.epochs.length) ? "" : "No scores per epoch in this run.",
    axes: () => [axis("epoch", last <= 12 ? { dtick: 1 } : {}), axis("")],
    traces: () =>
      pair
        .filter((run) => run.epochs.length)
        .flatMap((run) => own.map((task) => taskCurve(setting, run, pair, task, run.epochs, run.scores[task], "epoch %{x}", 5))),
  };
}

function taskCurve(setting, run, pair, task, x, y, where, marker = 0) {
  const look = colour(`t${task % TASK_COLOURS}`);
  const name = `<b>${literal(setting.tasks[task])}</b>, ${literal(run.label)}, noise ${run.noise}, seed ${run.seed}`;
  return {
    x,
    y,
    name,
    mode: marker ? "lines+markers" : "lines",
    line: { color: look, width: 1.8, dash: run === pair[0] ? "solid" : "dash" },
    marker: { color: look, size: marker },
    hovertemplate: `${name}<br>${where}: %{y:.4g}<extra></extra>`,
  };
}
