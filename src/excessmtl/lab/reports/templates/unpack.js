// Compressed text of the page, read where it lies.
async function unpack(id) {
  const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

async function loadPlotly() {
  const script = document.createElement("script");
  script.textContent = await unpack("plotly-source");
  document.head.append(script);
}
