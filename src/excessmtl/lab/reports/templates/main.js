// Tables work at once; figures follow when the drawing library and the numbers are unpacked.
document.querySelectorAll("table.sortable").forEach(makeSortable);
document.querySelectorAll(".setting").forEach(chooseNoise);
document.querySelectorAll("#beyond-only").forEach(chooseBeyond);
try {
  const [data, runs] = (await Promise.all([unpack("figure-data"), unpack("run-data"), loadPlotly()])).slice(0, 2).map((text) => JSON.parse(text));
  drawFigures(data);
  if (runs.length) startExplorer(data, runs);
  document.documentElement.dataset.ready = "true";
} catch (error) {
  const trouble = document.getElementById("trouble");
  trouble.textContent = `The figures could not be drawn (${error.message}); a browser from 2023 or later is needed. The tables are complete.`;
  trouble.hidden = false;
  throw error;
}
