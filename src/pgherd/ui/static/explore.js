"use strict";
// Draws the plot of the sample explorer from the specification that stands in the page, in the page's own colours.
(() => {
  let drawn = null;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const look = () => ({
    background: null,
    font: "system-ui, sans-serif",
    view: { stroke: null },
    axis: {
      labelColor: colour("--ink"), titleColor: colour("--muted"), titleFontWeight: "normal", titleFontSize: 12, labelFontSize: 12,
      gridColor: colour("--line"), domainColor: colour("--line"), tickColor: colour("--line"), titlePadding: 10, gridOpacity: 0.7,
    },
    legend: { labelColor: colour("--ink"), labelFontSize: 12, symbolStrokeWidth: 3 },
  });
  const draw = async () => {
    const place = document.getElementById("plot");
    const spec = document.getElementById("plot-spec");
    if (!place || !spec || !window.vegaEmbed) return;
    if (drawn) drawn.finalize();
    drawn = null;
    const options = { actions: false, ast: true, renderer: "canvas", defaultStyle: false, config: look(), tooltip: { disableDefaultStyle: true, theme: "pgherd" } };
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const text = dark ? spec.textContent.replaceAll("#0072B2", "#56B4E9") : spec.textContent; // the same blue, lighter
    drawn = await window.vegaEmbed(place, JSON.parse(text), options);
    place.dataset.drawn = "yes";
  };
  document.addEventListener("htmx:afterSettle", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", draw); else draw();
})();
