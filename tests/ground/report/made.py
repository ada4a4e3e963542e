"""Made test rows and models, with probabilities that are nearly calibrated."""

from dataclasses import replace

import numpy as np

from evalign.report import Contents, ModelFindings, Scored, TriedModels, render, scores

# The ids of the figures of two models.
FIGURES = {"intervals", "matrix-aligned", "matrix-cross_entropy", "precision-recall", "reliability"}


def labelled(model, labels, argmax=None):
    """Replace the predictions of a model by the given labels, and its argmax by others."""
    likely = labels if argmax is None else argmax
    classes = model.probabilities.shape[1]
    return replace(
        model, predicted=labels, probabilities=np.eye(classes)[likely] * 0.7 + 0.3 / classes
    )


def contents(classes=3, rows=400, *, baseline=True, seed=0, **changes):
    """Make contents with long-tailed classes; both models' rules take half of the prior out."""
    rng = np.random.default_rng(seed)
    prior = 10.0 ** -np.linspace(0, 1, classes)
    prior /= prior.sum()
    y = rng.choice(classes, rows, p=prior)

    def model(name):
        logits = 1.5 * rng.normal(size=(rows, classes)) + np.log(prior)
        logits[np.arange(rows), y] += 1.5**2
        probabilities = np.exp(logits)
        probabilities /= probabilities.sum(1, keepdims=True)
        predicted = (probabilities / prior**0.5).argmax(1)
        return Scored(name, predicted, probabilities)

    made = {
        "metric": "f1" if classes == 2 else "f1_macro",
        "classes": [f"class {code}" for code in range(classes)],
        "y": y,
        "aligned": model("aligned"),
        "baseline": model("cross_entropy") if baseline else None,
        "weight": None,
        "groups": None,
        "seed": 0,
        "cards": {"Data": {"rows": f"{rows}"}, "Run": {"seed": "0"}},
    }
    return Contents(**(made | changes))


def tried():
    """Make the evidence of two candidates and their blend."""

    def row(name, weight, score, gain):
        scores = {"rule_score": score, "argmax_score": score - 0.1, "gain": gain}
        ends = {"": 0, "_low": -0.05, "_high": 0.05}
        numbers = {f"{k}{end}": v + by for k, v in scores.items() for end, by in ends.items()}
        return {"candidate": name, "weight": weight, "seconds": 1.5, **numbers}

    rows = [row("trees", 0.7, 0.6, 0.1), row("<i>", 0.3, 0.5, 0.2), row("blend", 1.0, 0.7, 0.0)]
    gain = {"value": 0.2, "low": 0.15, "high": 0.25, "against": "trees"}
    return TriedModels(rows, gain, {"network": "it took <b>"})


def findings(models=2, columns=3):
    """Make findings: rules, and columns that matter less and less."""
    rules = [f"the largest logit plus\n{code} <b>" for code in range(models)]
    drops = [0.2 * 0.5**i - 0.01 for i in range(columns)]
    rows = [
        {"column": f"column {i} <b>", "value": drop, "low": drop - 0.02, "high": drop + 0.03}
        for i, drop in enumerate(drops)
    ]
    return ModelFindings(["Two files are <i>the same</i>."], rules, rows, 400)


def rendered(made):
    """Render the report of made contents."""
    return render(made, scores(made))
