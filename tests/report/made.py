"""Made test rows and models, with probabilities that are nearly calibrated."""

import numpy as np

from evalign.report import Contents, Scored, render, scores


def history(epochs, temperature):
    records, best = [], -1.0
    for epoch in range(1, epochs + 1):
        metric = 0.8 - 0.5 * np.exp(-epoch / 8) + 0.01 * np.sin(3 * epoch)
        records.append(
            {
                "epoch": epoch,
                "temperature": None if temperature is None else temperature * 0.9 ** (epoch // 6),
                "loss": float(np.exp(-epoch / 10)),
                "validation_loss": float(np.exp(-epoch / 9) + 0.002 * epoch),
                "validation_metric": float(metric),
                "best": bool(metric > best),
            }
        )
        best = max(best, metric)
    return records


def contents(classes=3, rows=400, *, baseline=True, seed=0, **changes):
    """Make contents with long-tailed classes; both models' rules take half of the prior out."""
    rng = np.random.default_rng(seed)
    prior = 10.0 ** -np.linspace(0, 1, classes)
    prior /= prior.sum()
    y = rng.choice(classes, rows, p=prior)

    def model(name, temperature):
        logits = 1.5 * rng.normal(size=(rows, classes)) + np.log(prior)
        logits[np.arange(rows), y] += 1.5**2
        probabilities = np.exp(logits)
        probabilities /= probabilities.sum(1, keepdims=True)
        predicted = (probabilities / prior**0.5).argmax(1)
        return Scored(name, predicted, probabilities, history(20, temperature))

    made = {
        "metric": "f1" if classes == 2 else "f1_macro",
        "classes": [f"class {code}" for code in range(classes)],
        "y": y,
        "aligned": model("aligned", 0.2),
        "baseline": model("cross_entropy", None) if baseline else None,
        "temperature": 0.12,
        "weight": None,
        "groups": None,
        "seed": 0,
        "cards": {"Data": {"rows": f"{rows}"}, "Run": {"seed": "0"}},
    }
    return Contents(**(made | changes))


def rendered(made):
    """Render the report of made contents."""
    return render(made, scores(made))
