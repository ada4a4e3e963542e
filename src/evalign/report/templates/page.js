"use strict";
const data = JSON.parse(document.getElementById("data").textContent);

if (data.curves.length) {
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

  // The chart's own coordinates: recall and, downwards, minus the precision.
  const place = (id, recall, precision) => {
    const mark = document.getElementById(id);
    mark.style.display = Number.isNaN(recall + precision) ? "none" : "";
    mark.setAttribute("transform", `translate(${recall || 0} ${-precision || 0})`);
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
    place("ring", recall, precision);
  }

  function showClass() {
    const { actual, models } = curve();
    models.forEach(({ tp, predicted, rule }, i) => {
      const points = tp.map((n, j) => `${ratio(n, actual)} ${-ratio(n, predicted[j])}`);
      document.getElementById(`curve-${i}`).setAttribute("d", "M" + points.join("L"));
      place(`rule-${i}`, ratio(rule.tp, actual), ratio(rule.tp, rule.predicted));
    });
    slider.max = models[0].tp.length - 1;
    slider.value = models[0].at;
    say({ class: curve().name });
    moveSlider();
  }

  slider.addEventListener("input", moveSlider);
  choice?.addEventListener("change", showClass);
  showClass();
}
