"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const options = { responsive: true, displayModeBar: false };

for (const [id, figure] of Object.entries(data.figures)) {
  Plotly.newPlot(id, figure.data, figure.layout, options);
}

if (data.curves.length) {
  const plot = document.getElementById("precision-recall");
  const slider = document.getElementById("threshold");
  const choice = document.getElementById("class"); // absent for two classes
  const curve = () => data.curves[choice ? choice.selectedIndex : 0];
  const ratio = (x, y) => (y > 0 ? x / y : NaN);
  const share = (x) => (Number.isNaN(x) ? "–" : x.toFixed(3));
  const count = (x) => x.toLocaleString("en", { maximumFractionDigits: data.weighted ? 1 : 0 });

  const say = (values) => {
    for (const [name, text] of Object.entries(values)) {
      document.getElementById("at-" + name).textContent = text;
    }
  };

  function moveSlider() {
    const { actual, total, models: [model] } = curve();
    const [tp, predicted] = [model.tp[slider.value], model.predicted[slider.value]];
    const [fp, fn] = [predicted - tp, actual - tp];
    const [precision, recall] = [ratio(tp, predicted), ratio(tp, actual)];
    const threshold = model.threshold[slider.value].toPrecision(4);
    slider.setAttribute("aria-valuetext", threshold);
    say({
      threshold,
      precision: share(precision),
      recall: share(recall),
      f1: share(ratio(2 * tp, predicted + actual)),
      tp: count(tp),
      fp: count(fp),
      fn: count(fn),
      tn: count(total - predicted - fn),
    });
    Plotly.restyle(plot, { x: [[recall]], y: [[precision]] }, [plot.data.length - 1]);
  }

  function showClass() {
    const { actual, models } = curve();
    const x = [], y = [];
    for (const { tp, predicted, rule } of models) {
      x.push(tp.map((n) => ratio(n, actual)), [ratio(rule.tp, actual)]);
      y.push(tp.map((n, i) => ratio(n, predicted[i])), [ratio(rule.tp, rule.predicted)]);
    }
    Plotly.restyle(plot, { x, y }, x.map((_, i) => i));
    slider.max = models[0].tp.length - 1;
    slider.value = models[0].at;
    say({ class: curve().name });
    moveSlider();
  }

  slider.addEventListener("input", moveSlider);
  choice?.addEventListener("change", showClass);
  showClass();
}

// A figure has a width in pixels, and the browser does not tell it that of the paper.
const plots = () => document.querySelectorAll(".js-plotly-plot");
addEventListener("beforeprint", () => {
  document.documentElement.classList.add("paper");
  for (const plot of plots()) Plotly.relayout(plot, { width: plot.clientWidth });
});
addEventListener("afterprint", () => {
  document.documentElement.classList.remove("paper");
  for (const plot of plots()) Plotly.relayout(plot, { width: null, autosize: true });
});
