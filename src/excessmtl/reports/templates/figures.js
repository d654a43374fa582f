// Measures against noise, one curve with its band per method.
function drawFigures(data) {
  for (const article of document.querySelectorAll(".setting")) {
    const { figures } = data.settings[article.dataset.setting];
    const hidden = new Set();
    const plots = [...article.querySelectorAll(".plot")];
    const drawAll = () => plots.forEach((plot) => draw(plot, () => figurePlot(figures[plot.dataset.figure], data, hidden)));
    for (const chip of article.querySelectorAll(".chip[data-label]")) {
      chip.addEventListener("click", () => {
        toggle(chip) ? hidden.delete(chip.dataset.label) : hidden.add(chip.dataset.label);
        drawAll();
      });
    }
    drawAll();
  }
}

function lookOf(data, label) {
  const look = data.looks[data.labels.indexOf(label)];
  return { ...look, colour: colour(`s${look.colour}`) };
}

function figurePlot(figure, data, hidden) {
  const shown = figure.curves.filter((curve) => !hidden.has(curve.label));
  const several = figure.levels.length > 1;
  // Bands first, so that no band lies over a line.
  const bands = several ? shown.filter((curve) => curve.deviation.some(Boolean)).map((curve) => band(curve, lookOf(data, curve.label))) : [];
  const lines = shown.map((curve) => line(curve, lookOf(data, curve.label), figure.digits, several));
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
