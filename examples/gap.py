"""Draw docs/assets/gap.svg: the F1 of one boosted model at every threshold, on held-out rows.

    python examples/gap.py

It needs matplotlib (`pip install -e '.[plot]'`) and takes seconds.
"""

from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import f1_score
from sklearn.model_selection import train_test_split

from evalign import AlignedDecisionCV

PICTURE = Path(__file__).parents[1] / "docs" / "assets" / "gap.svg"
# Each colour for light and dark mode; matplotlib draws the first, `main` makes it a variable.
COLOURS = {
    "paper": ("#ffffff", "#161b22"),
    "ink": ("#24292f", "#d8dee4"),
    "curve": ("#0969da", "#58a6ff"),
    "half": ("#bc4c00", "#f0883e"),
    "rule": ("#1a7f37", "#3fb950"),
}
PAPER, INK, CURVE, HALF, RULE = (light for light, _ in COLOURS.values())


def found() -> tuple[np.ndarray, np.ndarray, dict[str, float]]:
    """Compute thresholds, the F1 at each, and the thresholds of `predict` and of the rule."""
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
    scores = [f1_score(y_test, positive >= threshold) for threshold in thresholds]
    return thresholds, np.array(scores), marked


def drawn(thresholds: np.ndarray, scores: np.ndarray, marked: dict[str, float]) -> Figure:
    figure = Figure(figsize=(7.6, 3.4), layout="constrained", facecolor=PAPER)
    axes = figure.subplots()
    axes.plot(thresholds, scores, color=CURVE, linewidth=2)
    words = {HALF: "predict:\nthe likelier class", RULE: "evalign:\nthe rule for F1"}
    for colour, threshold in marked.items():
        score = scores[np.searchsorted(thresholds, threshold)]
        axes.plot([threshold, threshold], [0, score], color=colour, linewidth=1.5, linestyle="--")
        axes.plot(threshold, score, "o", color=colour, markersize=9)
        text = f"{words[colour]}\nF1 {100 * score:.0f} at {threshold:.2f}"
        axes.annotate(
            text, (threshold, score), xytext=(6, 12), textcoords="offset points", color=colour
        )
    axes.set(xlim=(0, 1), ylim=(0, 0.8), facecolor=PAPER)
    axes.set_xlabel("threshold: positive from this probability on", color=INK)
    axes.set_ylabel("F1 on rows held out", color=INK)
    axes.tick_params(colors=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["bottom", "left"]].set_color(INK)
    return figure


def style() -> str:
    light, dark = (
        " ".join(f"--{name}: {pair[side]};" for name, pair in COLOURS.items()) for side in (0, 1)
    )
    return (
        f"<style>svg {{ {light} }} "
        f"@media (prefers-color-scheme: dark) {{ svg {{ {dark} }} }}</style>\n"
    )


def main() -> None:
    matplotlib.rcParams.update({"svg.hashsalt": "gap", "font.size": 11})
    drawn(*found()).savefig(PICTURE, metadata={"Date": None, "Creator": None})
    text = PICTURE.read_text(encoding="utf-8")
    for name, (light, _) in COLOURS.items():
        text = text.replace(light, f"var(--{name})")
    text = text.replace(" <defs>", f" {style()} <defs>", 1)
    PICTURE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
