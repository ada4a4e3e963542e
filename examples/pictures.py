"""Draw the pictures of the start page, the tutorials and the reference, into docs/assets.

    python examples/pictures.py

- gap.svg: the F1 of one boosted model at every threshold, on held-out rows.
- confusion.svg: what a rule does to the confusion matrix of a forest.
- annealing.svg: the step at three temperatures, and a temperature that falls on plateaus.
- offsets.svg: what AlignedLoss adds to the logits while a network learns.

It needs matplotlib (`pip install matplotlib`) and takes seconds.
"""

from pathlib import Path

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.datasets import make_classification
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.metrics import confusion_matrix, f1_score
from sklearn.model_selection import train_test_split
from torch import nn

from evalign import AlignedDecisionCV, AlignedLoss, MetricLoss, TemperatureAnnealing, score
from evalign.cli.demo import digits
from evalign.membership import heaviside

ASSETS = Path(__file__).parents[1] / "docs" / "assets"
# Each colour for light and dark mode; matplotlib draws the first, `save` makes it a variable.
COLOURS = {
    "paper": ("#ffffff", "#161b22"),
    "ink": ("#24292f", "#d8dee4"),
    "curve": ("#0969da", "#58a6ff"),
    "half": ("#bc4c00", "#f0883e"),
    "rule": ("#1a7f37", "#3fb950"),
}
PAPER, INK, CURVE, HALF, RULE = (light for light, _ in COLOURS.values())


def panels(columns: int, height: float) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(7.6, height), layout="constrained", facecolor=PAPER)
    axes = list(figure.subplots(1, columns, squeeze=False)[0])
    for axis in axes:
        axis.set_facecolor(PAPER)
        axis.tick_params(colors=INK)
        for part in (axis.xaxis.label, axis.yaxis.label, axis.title):
            part.set_color(INK)
        axis.spines[["top", "right"]].set_visible(False)
        axis.spines[["bottom", "left"]].set_color(INK)
    return figure, axes


def gap() -> Figure:
    """The F1 at every threshold, with those of `predict` and of the rule."""
    X, y = make_classification(
        12_000, n_features=12, n_informative=6, weights=[0.95], class_sep=0.8, random_state=0
    )
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=0.5, stratify=y, random_state=0
    )
    model = HistGradientBoostingClassifier(random_state=0)
    clf = AlignedDecisionCV(model, metric="f1", random_state=0).fit(X_train, y_train)
    positive = clf.predict_proba(X_test)[:, 1]
    marked = {HALF: 0.5, RULE: float(clf.rule_.threshold)}
    thresholds = np.sort([*np.linspace(0.01, 0.99, 99), *marked.values()])
    scores = np.array([f1_score(y_test, positive >= threshold) for threshold in thresholds])

    figure, (axes,) = panels(1, 3.4)
    axes.plot(thresholds, scores, color=CURVE, linewidth=2)
    words = {HALF: "predict:\nthe likelier class", RULE: "evalign:\nthe rule for F1"}
    for colour, threshold in marked.items():
        found = scores[np.searchsorted(thresholds, threshold)]
        axes.plot([threshold, threshold], [0, found], color=colour, linewidth=1.5, linestyle="--")
        axes.plot(threshold, found, "o", color=colour, markersize=9)
        text = f"{words[colour]}\nF1 {100 * found:.0f} at {threshold:.2f}"
        axes.annotate(
            text, (threshold, found), xytext=(6, 12), textcoords="offset points", color=colour
        )
    axes.set(xlim=(0, 1), ylim=(0, 0.8))
    axes.set_xlabel("threshold: positive from this probability on")
    axes.set_ylabel("F1 on held-out rows")
    return figure


def confusion() -> Figure:
    """The confusion matrix of a forest on long-tailed digits, by `predict` and by the rule."""
    X, X_test, y, y_test, tail = digits()
    X_train, y_train = X[tail], y[tail]
    forest = ExtraTreesClassifier(100, random_state=0)
    clf = AlignedDecisionCV(forest, metric="f1_macro", random_state=0).fit(X_train, y_train)
    figure, axes = panels(2, 3.6)
    given = {"predict": clf.estimator_.predict(X_test), "the rule": clf.predict(X_test)}
    for axis, (name, labels) in zip(axes, given.items(), strict=True):
        matrix = confusion_matrix(y_test, labels)
        shares = matrix / matrix.sum(1, keepdims=True)
        for (true, label), count in np.ndenumerate(matrix):
            if count:
                colour = CURVE if true == label else HALF
                axis.scatter(label, true, s=220 * shares[true, label], color=colour, linewidths=0)
        f1 = f1_score(y_test, labels, average="macro")
        axis.set(title=f"{name}: macro-F1 {100 * f1:.0f}", xlabel="predicted digit", aspect="equal")
        axis.set(xticks=range(10), yticks=range(10), ylim=(9.6, -0.6))
    axes[0].set_ylabel("true digit, the rarest at the bottom")
    return figure


def annealing() -> Figure:
    """The step at three temperatures; and a temperature that cools when a score stops rising."""
    figure, (left, right) = panels(2, 2.8)
    p = torch.linspace(0, 1, 201)
    for temperature, colour in {0.4: HALF, 0.2: CURVE, 0.02: RULE}.items():
        step = heaviside.tempered(p, 0.5, temperature=temperature)
        left.plot(p, step, color=colour, label=f"T = {temperature}")
    left.set(xlabel="probability of the class", ylabel="membership")
    left.legend(frameon=False, labelcolor=INK)

    loss = MetricLoss("f1")
    cooling = TemperatureAnnealing(loss, start=0.2, rate=0.7, patience=3)
    generator = np.random.default_rng(0)
    scores = 0.8 - 0.5 * np.exp(-np.arange(45) / 6) + 0.01 * generator.normal(size=45)
    temperatures = []
    for found in scores:
        cooling.step(score=float(found))
        temperatures.append(float(loss.temperature))
    right.step(range(45), temperatures, color=CURVE, where="post")
    right.plot(range(45), scores / 4, color=HALF, linewidth=1)
    right.annotate("temperature", (8, 0.215), color=CURVE)
    right.annotate("score (scaled)", (1, 0.06), color=HALF)
    right.set(xlabel="epoch", ylim=(0, 0.25))
    return figure


def offsets() -> Figure:
    """The offsets of AlignedLoss, and the macro-F1 of its argmax, step by step."""
    torch.manual_seed(0)
    centres = torch.tensor([[0.0, 0.0], [1.5, 0.0], [0.0, 1.5]])
    share = torch.tensor([0.9, 0.08, 0.02])
    y = torch.multinomial(share, 8000, replacement=True)
    x = centres[y] + torch.randn(len(y), 2)
    curves: dict[str, list[float]] = {}
    figure, (left, right) = panels(2, 2.8)
    followed: list[torch.Tensor] = []
    for loss in (nn.CrossEntropyLoss(), AlignedLoss("f1_macro")):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        curve = []
        for _ in range(200):
            rows = torch.randint(4000, (256,))
            optimizer.zero_grad()
            loss(model(x[rows]), y[rows]).backward()
            optimizer.step()
            with torch.no_grad():
                labels = model(x[4000:]).argmax(1)
            curve.append(score("f1_macro", y_true=y[4000:], y_pred=labels))
            if isinstance(loss, AlignedLoss) and loss.offsets is not None:
                followed.append(loss.offsets.clone())
        curves[type(loss).__name__] = curve
    moved = torch.stack(followed)
    for label, colour, of in ((0, INK, "90%"), (1, CURVE, "8%"), (2, HALF, "2%")):
        left.plot(moved[:, label], color=colour, label=f"class with {of} of the rows")
    left.set(xlabel="step", ylabel="offset", ylim=(-7.2, 2.5))
    left.legend(frameon=False, labelcolor=INK, fontsize=9, loc="lower right")
    for (name, curve), colour in zip(curves.items(), (HALF, RULE), strict=True):
        right.plot(curve, color=colour, label=name)
    right.set(xlabel="step", ylabel="macro-F1 of the argmax", ylim=(0, 0.7))
    right.legend(frameon=False, labelcolor=INK, loc="lower right")
    return figure


def style() -> str:
    light, dark = (
        " ".join(f"--{name}: {pair[side]};" for name, pair in COLOURS.items()) for side in (0, 1)
    )
    return (
        f"<style>svg {{ {light} }} "
        f"@media (prefers-color-scheme: dark) {{ svg {{ {dark} }} }}</style>\n"
    )


def save(figure: Figure, name: str) -> None:
    picture = ASSETS / f"{name}.svg"
    figure.savefig(picture, metadata={"Date": None, "Creator": None})
    text = picture.read_text(encoding="utf-8")
    for colour, (light, _) in COLOURS.items():
        text = text.replace(light, f"var(--{colour})")
    picture.write_text(text.replace(" <defs>", f" {style()} <defs>", 1), encoding="utf-8")


def main() -> None:
    matplotlib.rcParams.update({"svg.hashsalt": "gap", "font.size": 11})
    for draw in (gap, confusion, annealing, offsets):
        save(draw(), draw.__name__)


if __name__ == "__main__":
    main()
