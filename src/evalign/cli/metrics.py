"""The work of `evalign metrics`."""

from argparse import Namespace

from evalign.cli.terminal import Terminal

# Written out, because the library takes seconds to load; a test compares the names.
OF_ALL_CLASSES = {
    "accuracy": "share of rows labelled correctly",
    "balanced_accuracy": "mean recall of the classes",
    "cohen_kappa": "agreement beyond chance",
    "cohen_kappa_linear": "agreement of ordered classes beyond chance; errors cost their distance",
    "cohen_kappa_quadratic": "the same with the square of the distance",
    "g_mean": "geometric mean of the classes' recalls",
    "matthews_corrcoef": "correlation of true and predicted labels (MCC)",
}
OF_A_CLASS = {
    "f0.5": "F-score in which precision counts twice as much as recall",
    "f1": "2 tp / (2 tp + fp + fn), the harmonic mean of precision and recall",
    "f2": "F-score in which recall counts twice as much as precision",
    "informedness": "recall + specificity - 1 (Youden's J)",
    "jaccard": "tp / (tp + fp + fn), intersection over union (IoU)",
    "npv": "tn / (tn + fn), negative predictive value",
    "precision": "tp / (tp + fp), positive predictive value",
    "recall": "tp / (tp + fn), sensitivity",
    "specificity": "tn / (tn + fp)",
}
AVERAGES = {
    "": "",
    "_macro": "; mean over the classes",
    "_micro": "; of all classes pooled",
    "_weighted": "; mean over the classes, weighted by their rows",
}
MORE = """
tp, fp, fn and tn are a class's true and false positives and negatives. Without _macro, _micro or
_weighted, the class is the positive one. Other F-scores work too, such as f0.25 or f3_macro. A mean
cost, which is minimised, is "expected_cost[[0, 1], [5, 0]]", with a row for each true class and a
column for each predicted one."""


def meanings() -> dict[str, str]:
    """What each metric measures, by its name."""
    averaged = {
        f"{name}{end}": f"{meaning}{average}"
        for name, meaning in OF_A_CLASS.items()
        for end, average in AVERAGES.items()
    }
    return dict(sorted((OF_ALL_CLASSES | averaged).items()))


def list_metrics(spoken: Terminal, _: Namespace) -> None:
    """Do the work of `evalign metrics`."""
    found = meanings()
    width = max(map(len, found)) + 2
    lines = [f"{name:<{width}}{meaning}" for name, meaning in found.items()]
    spoken.result({"metrics": found}, *lines, *MORE.splitlines())
