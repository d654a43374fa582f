// How every plot looks: colours come from the style sheet, so plots follow the colour scheme as the page does.
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "cross", "triangle-down", "star", "hexagon", "pentagon", "x"];
const DASHES = ["solid", "dash", "dot", "dashdot"];
const COLOURS = 10;
const drawings = new Map();

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// The same method has the same slot, and with it the same colour and marker, everywhere on the page.
function methodLook(slot) {
  return { colour: colour(`s${slot % COLOURS}`), symbol: SYMBOLS[slot % SYMBOLS.length], dash: DASHES[Math.floor(slot / COLOURS) % DASHES.length] };
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
    automargin: true,
    ...more,
  };
}

function layout(xaxis, yaxis) {
  return {
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("soft") },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 44, r: 12, t: 8, b: 40 },
    showlegend: false,
    hovermode: "closest",
    hoverlabel: { bgcolor: colour("card"), bordercolor: colour("line"), font: { color: colour("ink") }, align: "left", namelength: -1 },
    // A finger that scrolls the page must not zoom into a plot.
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
    xaxis,
    yaxis,
  };
}

// `make` returns {traces, layout}; it is called again when the colour scheme changes.
function draw(element, make) {
  drawings.set(element, make);
  const { traces, layout } = make();
  return Plotly.react(element, traces, layout, {
    responsive: true,
    displaylogo: false,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "pan2d", "zoomIn2d", "zoomOut2d", "zoom2d"],
  });
}

function forget(element) {
  drawings.delete(element);
  Plotly.purge(element);
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const [element, make] of drawings) draw(element, make);
});
