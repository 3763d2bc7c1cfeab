"use strict";
// Draws the plot of the samples page from the specification in the page, in the colours of the theme.
(() => {
  let drawn = null;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const theme = () => ({
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
    const plot = document.getElementById("plot");
    const spec = document.getElementById("plot-spec");
    if (!plot || !spec || !window.vegaEmbed) return;
    if (drawn) drawn.finalize();
    drawn = null;
    const options = { actions: false, ast: true, renderer: "canvas", defaultStyle: false, config: theme(), tooltip: { disableDefaultStyle: true, theme: "pgherd" } };
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const text = dark ? spec.textContent.replaceAll("#0072B2", "#56B4E9") : spec.textContent; // a lighter shade of the same blue
    drawn = await window.vegaEmbed(plot, JSON.parse(text), options);
    plot.dataset.drawn = "yes";
  };
  document.addEventListener("htmx:afterSettle", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", draw); else draw();
})();
