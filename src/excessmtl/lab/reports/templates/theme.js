// How every plot looks: colours come from the style sheet, so plots follow the colour scheme as the page does.
const drawings = new Map();
const underWay = new Map();
const coarse = matchMedia("(pointer: coarse)").matches;

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function faded(hex, alpha) {
  return hex + Math.round(alpha * 255).toString(16).padStart(2, "0");
}

// Plotly reads a little HTML in texts; names are meant as they are written.
function literal(text) {
  return String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;");
}

function axis(title, more = {}) {
  return {
    title: { text: title, standoff: 8 },
    gridcolor: colour("grid"),
    linecolor: colour("line"),
    zerolinecolor: colour("grid"),
    ...more,
  };
}

function layout(xaxis, yaxis) {
  return {
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("soft") },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 54, r: 12, t: 8, b: 42 },
    showlegend: false,
    hovermode: "closest",
    hoverlabel: { bgcolor: colour("card"), bordercolor: colour("line"), font: { color: colour("ink") }, align: "left", namelength: -1 },
    // A finger that scrolls the page must not zoom into a plot.
    dragmode: coarse ? false : "zoom",
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("line"), activecolor: colour("soft") },
    xaxis,
    yaxis,
  };
}

// `make` returns {traces, layout}; it is called again when the colour scheme changes.
function draw(element, make) {
  drawings.set(element, make);
  const { traces, layout } = make();
  const done = Plotly.react(element, traces, layout, {
    responsive: true,
    displaylogo: false,
    displayModeBar: coarse ? false : "hover",
    // Only what stays on this machine: the library's own choice has a button that sends the chart away.
    modeBarButtons: [["toImage", "resetScale2d"]],
  });
  underWay.set(element, done);
}

// Plotly stumbles over a plot that is taken away while it is being drawn.
async function forget(element) {
  drawings.delete(element);
  await underWay.get(element);
  if (!drawings.has(element)) Plotly.purge(element);
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const [element, make] of drawings) draw(element, make);
});
