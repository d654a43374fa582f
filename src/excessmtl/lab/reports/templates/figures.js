// Measures against noise, one curve with its band per method.
const MOST_BANDS = 8; // more of them hide each other and the lines

function drawFigures(data) {
  for (const article of document.querySelectorAll(".setting")) new MethodFigures(data, article).start();
}

// The figures of one setting and the chips that say which methods they show.
class MethodFigures {
  constructor(data, article) {
    this.data = data;
    this.figures = data.settings[article.dataset.setting].figures;
    this.chips = [...article.querySelectorAll(".chip[data-label]")];
    this.buttons = [...article.querySelectorAll("[data-all]")];
    this.plots = [...article.querySelectorAll(".plot")];
    this.pointedAt = null;
  }

  start() {
    for (const chip of this.chips) {
      chip.addEventListener("click", () => this.after(() => toggle(chip)));
      if (coarse) continue; // a finger does not hover
      chip.addEventListener("pointerenter", () => this.after(() => (this.pointedAt = chip.dataset.label)));
      chip.addEventListener("pointerleave", () => this.after(() => (this.pointedAt = null)));
    }
    for (const button of this.buttons) {
      button.addEventListener("click", () => this.after(() => this.chips.forEach((chip) => chip.setAttribute("aria-pressed", button.dataset.all))));
    }
    this.draw();
  }

  after(change) {
    change();
    this.draw();
  }

  draw() {
    for (const plot of this.plots) draw(plot, () => figurePlot(this.figures[plot.dataset.figure], this.data, this.chosen(), this.pointedAt));
  }

  chosen() {
    return new Set(this.chips.filter((chip) => chip.getAttribute("aria-pressed") === "true").map((chip) => chip.dataset.label));
  }
}

function lookOf(data, label) {
  const look = data.looks[data.labels.indexOf(label)];
  return { ...look, colour: colour(`s${look.colour}`) };
}

function figurePlot(figure, data, chosen, pointedAt) {
  const shown = figure.curves.filter((curve) => chosen.has(curve.label));
  const several = figure.levels.length > 1;
  // Bands first, so that no band lies over a line.
  const spread = several && shown.length <= MOST_BANDS ? shown.filter((curve) => curve.deviation.some(Boolean)) : [];
  const bands = spread.map((curve) => band(curve, lookOf(data, curve.label)));
  const opacity = (curve) => (shown.some(({ label }) => label === pointedAt) && curve.label !== pointedAt ? 0.15 : 1);
  const lines = shown.map((curve) => ({ opacity: opacity(curve), ...line(curve, lookOf(data, curve.label), figure.digits, several) }));
  const noise = axis("noise", { tickvals: figure.levels, showgrid: false });
  if (!several) noise.range = [figure.levels[0] - 0.5, figure.levels[0] + 0.5];
  return { traces: [...bands, ...lines], layout: layout(noise, axis("", figure.share ? { range: [-0.02, 1.02] } : {})) };
}

function band(curve, look) {
  const edge = (sign) => curve.mean.map((mean, index) => mean + sign * curve.deviation[index]);
  return {
    x: [...curve.noise, ...curve.noise.toReversed()],
    y: [...edge(1), ...edge(-1).toReversed()],
    fill: "toself",
    fillcolor: faded(look.colour, 0.13),
    line: { width: 0 },
    mode: "lines",
    hoverinfo: "skip",
  };
}

function line(curve, look, digits, several) {
  const text = curve.mean.map((mean, index) => {
    const seeds = curve.seeds[index];
    const spread = seeds > 1 ? ` ± ${curve.deviation[index].toFixed(digits)} (${seeds} seeds)` : "";
    return `<b>${literal(curve.label)}</b><br>noise ${curve.noise[index]}: ${mean.toFixed(digits)}${spread}`;
  });
  return {
    x: curve.noise,
    y: curve.mean,
    error_y: { type: "data", array: curve.deviation, visible: !several, thickness: 1.2, color: look.colour },
    name: literal(curve.label),
    mode: "lines+markers",
    line: { color: look.colour, width: 2, dash: look.dash },
    marker: { color: look.colour, size: 7, symbol: look.symbol },
    text,
    hovertemplate: "%{text}<extra></extra>",
  };
}
