"""Which method is best for a metric on one's own rows, and is the difference more than chance?

All methods see the same folds. Scores of overlapping training sets are not independent; the
corrected variance of Nadeau and Bengio, "Inference for the Generalization Error" (Machine Learning
52, 2003), takes that into account, here for repeated folds as in Bouckaert and Frank, "Evaluating
the Replicability of Significance Tests for Comparing Learning Algorithms" (PAKDD 2004).
"""

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from scipy import sparse, stats
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold
from sklearn.utils import _safe_indexing, check_consistent_length

from evalign.core.checks import require
from evalign.core.confusion import Confusion
from evalign.core.metrics import MetricFunction, resolve
from evalign.estimator import AlignedClassifier

OWNER = "compare"
PLAIN, TUNED = "cross-entropy (argmax)", "cross-entropy (tuned)"
CHANCE = 0.05  # a smaller p-value is beyond it
FEW = 5  # values; with less, no difference is called beyond chance
SPREAD = 1e-9  # of a mean; less is rounding


class Method(NamedTuple):
    """What is trained, and how labels come of its probabilities."""

    model: str
    decision: Literal["argmax", "tuned"]


METHODS = {
    PLAIN: Method("cross_entropy", "argmax"),
    TUNED: Method("cross_entropy", "tuned"),
    "focal (tuned)": Method("focal", "tuned"),
    "logit-adjusted (tuned)": Method("logit_adjusted", "tuned"),
    "EAST (argmax)": Method("east", "argmax"),  # as in the paper
    "anchored (tuned)": Method("anchored", "tuned"),
    "random forest (argmax)": Method("random_forest", "argmax"),
    "gradient boosting (argmax)": Method("gradient_boosting", "argmax"),
}


class Record(NamedTuple):
    """The metric of one method on one held-out fold, and what its training took."""

    method: str
    seed: int
    fold: int
    score: float
    seconds: float


class Estimate(NamedTuple):
    """A mean over folds, its 95% interval, and the p-value of its being 0."""

    value: float
    low: float
    high: float
    p: float


class Row(NamedTuple):
    """A method in the summary.

    `difference` is the method's score minus the rival's, fold by fold; its p-value is Holm's, of
    all differences to the rival together. None for the rival itself.
    """

    method: str
    score: Estimate
    difference: Estimate | None
    seconds: float


def compare(
    classifier: AlignedClassifier,
    X: Any,
    y: Any,
    *,
    features: Any = None,
    methods: Sequence[str] = tuple(METHODS),
    folds: int = 5,
    seeds: Iterable[int] = range(3),
    groups: Any = None,
    sample_weight: Any = None,
) -> Iterator[Record]:
    """Train every method on the same stratified folds, once per seed; a record after each.

    Arguments are checked at once; training goes on as the records are asked for.

    Args:
        classifier: gives the metric, and how all networks are trained; its recipe, decision and
            random_state are replaced.
        X: rows, as `features` takes them.
        y: the class of each row, 0 to C - 1; every class in every fold.
        features: a scikit-learn transformer, fitted anew on the training rows of each fold; None
            takes X as it is.
        methods: some of `METHODS`. The two of cross-entropy share one training.
        folds: of the cross-validation.
        seeds: each gives other folds, initial weights and trees.
        groups: a value per row; the rows of a group stay in one fold.
        sample_weight: a weight per row, in training and in the score; rows of weight 0 are left
            out.

    Examples:
        >>> from sklearn.datasets import make_classification
        >>> X, y = make_classification(200, weights=[0.8], random_state=0)
        >>> classifier = AlignedClassifier("f1", epochs=2)
        >>> methods = ["cross-entropy (argmax)", "random forest (argmax)"]
        >>> for record in compare(classifier, X, y, methods=methods, folds=2, seeds=[0]):
        ...     print(record.method, record.fold)
        cross-entropy (argmax) 0
        random forest (argmax) 0
        cross-entropy (argmax) 1
        random forest (argmax) 1
    """
    check_consistent_length(X, y, groups, sample_weight)
    y, groups = np.asarray(y), None if groups is None else np.asarray(groups)
    weight = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    if weight is not None:
        rows = np.flatnonzero(weight)
        X, y, weight = _safe_indexing(X, rows), y[rows], weight[rows]
        groups = None if groups is None else groups[rows]
    classes = np.unique(y)
    codes = len(classes) > 1 and np.array_equal(classes, np.arange(len(classes)))
    require(codes, OWNER, "y", "hold the classes 0 to C - 1, two at least", classes[:5].tolist())
    unknown = [method for method in methods if method not in METHODS]
    require(not unknown, OWNER, "methods", f"be some of {', '.join(METHODS)}", unknown)
    require(folds >= 2, OWNER, "folds", "be at least 2", folds)
    metric = classifier.metric
    metric = resolve(metric, owner=OWNER) if isinstance(metric, str) else metric
    splits = _splits(y.astype(np.int64), groups, folds, seeds)
    return _records(classifier, metric, _Rows(X, y, groups, weight), features, methods, splits)


def summarize(
    records: Sequence[Record],
    *,
    greater_is_better: bool = True,
    against: str = PLAIN,
) -> list[Row]:
    """A row per method, the best mean first; differences are to the method `against`."""
    scores: dict[str, dict[tuple[int, int], float]] = {}
    seconds: dict[str, list[float]] = {}
    for method, seed, fold, score, took in records:
        scores.setdefault(method, {})[seed, fold] = score
        seconds.setdefault(method, []).append(took)
    require(against in scores, "summarize", "against", f"be one of {list(scores)}", repr(against))
    folds = len({record.fold for record in records})
    rivals = [method for method in scores if method != against]
    differences = [
        estimate([scores[method][split] - score for split, score in scores[against].items()], folds)
        for method in rivals
    ]
    adjusted = _holm(np.array([difference.p for difference in differences]))
    of_method = {
        method: difference._replace(p=p)
        for method, difference, p in zip(rivals, differences, adjusted.tolist(), strict=True)
    }
    rows = [
        Row(
            method,
            estimate(list(values.values()), folds),
            of_method.get(method),
            float(np.mean(seconds[method])),
        )
        for method, values in scores.items()
    ]
    sign = -1 if greater_is_better else 1
    return sorted(rows, key=lambda row: sign * row.score.value)


def estimate(values: Sequence[float], folds: int) -> Estimate:
    """The mean of a repeated cross-validation, with Nadeau and Bengio's corrected variance.

    Of n = folds · repetitions values with sample variance s², the variance of the mean is
    (1/n + n_test/n_train) · s², where n_test/n_train = 1/(folds - 1); t with n - 1 degrees of
    freedom. The plain s²/n ignores that training sets overlap, and finds differences everywhere.
    Values that are all alike say nothing of their spread: p is then 1.

    Examples:
        >>> mean, low, high, p = estimate([0.02, 0.03, 0.01, 0.04, 0.05], folds=5)
        >>> f"{mean:.3f} in [{low:.3f}, {high:.3f}], p = {p:.3f}"
        '0.030 in [0.001, 0.059], p = 0.047'
    """
    n = len(values)
    mean = float(np.mean(values))
    error = math.sqrt((1 / n + 1 / (folds - 1)) * float(np.var(values, ddof=1)))
    if error <= SPREAD * abs(mean):
        return Estimate(mean, mean, mean, 1.0)
    reach = float(stats.t.ppf(0.975, n - 1)) * error
    p = 2 * float(stats.t.sf(abs(mean) / error, n - 1))
    return Estimate(mean, mean - reach, mean + reach, p)


def verdict(records: Sequence[Record], *, metric: str, greater_is_better: bool = True) -> list[str]:
    """In plain words: which method is best, and whether it beats cross-entropy beyond chance."""
    rows = summarize(records, greater_is_better=greater_is_better)
    best = rows[0]
    if best.method == PLAIN:
        return [f"Plain cross-entropy wins: no other method has a better mean {metric}."]
    sentences = [f"{best.method} has the best mean {metric}."]
    values = sum(record.method == PLAIN for record in records)
    if values < FEW:
        return [*sentences, f"{values} folds are too few to tell whether that is more than chance."]
    beyond = {}
    for rival in (PLAIN, TUNED):
        if rival == best.method or all(row.method != rival for row in rows):
            continue
        against = summarize(records, greater_is_better=greater_is_better, against=rival)
        difference = against[0].difference
        assert difference is not None
        beyond[rival] = difference.p < CHANCE
        word = "is beyond chance" if beyond[rival] else "may be chance"
        p = "p < 0.001" if difference.p < 0.001 else f"p = {difference.p:.2g}"
        sentences.append(f"Its difference to {rival}, {difference.value:+.3g}, {word} ({p}).")
    sign = 1 if greater_is_better else -1
    better = [
        row.method
        for row in rows
        if row.difference and sign * row.difference.value > 0 and row.difference.p < CHANCE
    ]
    if not better:
        sentences.append("No method is shown to beat plain cross-entropy on these rows.")
    elif not beyond[PLAIN]:
        sentences.append(f"Shown to beat plain cross-entropy: {', '.join(better)}.")
    elif best.method == TUNED:
        sentences.append("A tuned decision is all that cross-entropy needs on these rows.")
    elif not beyond.get(TUNED, True):
        sentences.append("Cross-entropy with a tuned decision may be just as good on these rows.")
    return sentences


class _Rows(NamedTuple):
    """All rows; groups and weights may be None."""

    X: Any
    y: np.ndarray
    groups: np.ndarray | None
    weight: np.ndarray | None


class _Split(NamedTuple):
    seed: int
    fold: int
    training: np.ndarray
    test: np.ndarray


def _splits(
    y: np.ndarray, groups: np.ndarray | None, folds: int, seeds: Iterable[int]
) -> list[_Split]:
    """Every class is in every fold, and two groups are in every training part."""
    counts, fewer = np.bincount(y), "Use fewer folds."
    allowed = f"be at most {counts.min()}, the rows of the rarest class"
    require(folds <= counts.min(), OWNER, "folds", allowed, folds)
    if groups is not None:
        number, least = len(np.unique(groups)), max(3, folds)
        require(number >= least, OWNER, "groups", f"name at least {least} groups", number)
    kind = StratifiedKFold if groups is None else StratifiedGroupKFold
    splits = []
    for seed in seeds:
        parts = kind(folds, shuffle=True, random_state=seed).split(y, y, groups)
        splits += [_Split(seed, fold, *part) for fold, part in enumerate(parts)]
    for split in splits:
        scarce = int(np.bincount(y[split.test], minlength=len(counts)).argmin())
        allowed, got = "leave every class in every fold", f"no class {scarce} in one"
        require(scarce in y[split.test], OWNER, "groups", allowed, got, fewer)
        if groups is not None:  # of which a network holds some out for validation
            number = len(np.unique(groups[split.training]))
            allowed, more = "leave two groups or more to train on", "Use more folds, or groups."
            require(number >= 2, OWNER, "groups", allowed, number, more)
    return splits


def _records(
    classifier: AlignedClassifier,
    metric: MetricFunction,
    rows: _Rows,
    features: Any,
    methods: Sequence[str],
    splits: Sequence[_Split],
) -> Iterator[Record]:
    models = dict.fromkeys(METHODS[method].model for method in methods)
    for split in splits:
        X_training, X_test = _features(features, rows, split)
        for name in models:
            rules = {m: METHODS[m].decision for m in methods if METHODS[m].model == name}
            decision = "tuned" if "tuned" in rules.values() else "argmax"
            model = _model(name, decision, classifier, split.seed)
            start = time.perf_counter()
            _fit(model, X_training, rows, split.training)
            seconds = time.perf_counter() - start
            for method, rule in rules.items():
                score = _score(metric, rows, split.test, _labels(model, rule, X_test))
                yield Record(method, split.seed, split.fold, score, seconds)


def _features(features: Any, rows: _Rows, split: _Split) -> tuple[Any, Any]:
    """Of the training rows and of the test rows, learnt from the former."""
    training, test = _safe_indexing(rows.X, split.training), _safe_indexing(rows.X, split.test)
    if features is not None:
        pipeline: Any = clone(features)
        training = pipeline.fit_transform(training, rows.y[split.training])
        test = pipeline.transform(test)
    return _dense(training), _dense(test)


def _model(name: str, decision: str, classifier: AlignedClassifier, seed: int) -> Any:
    if name == "random_forest":
        return RandomForestClassifier(random_state=seed)
    if name == "gradient_boosting":
        return HistGradientBoostingClassifier(random_state=seed)
    network: Any = clone(classifier)
    return network.set_params(recipe=name, decision=decision, random_state=seed)


def _fit(model: Any, X: Any, rows: _Rows, training: np.ndarray) -> None:
    arguments = {}
    if rows.groups is not None and isinstance(model, AlignedClassifier):
        arguments["groups"] = rows.groups[training]
    if rows.weight is not None:
        arguments["sample_weight"] = rows.weight[training]
    model.fit(X, rows.y[training], **arguments)


def _labels(model: Any, decision: str, X: Any) -> np.ndarray:
    # The columns are the classes: every training part holds all of them.
    return model.predict(X) if decision == "tuned" else model.predict_proba(X).argmax(1)


def _score(metric: MetricFunction, rows: _Rows, test: np.ndarray, labels: np.ndarray) -> float:
    weight = None if rows.weight is None else torch.from_numpy(rows.weight[test])
    confusion = Confusion.from_predictions(
        torch.from_numpy(labels),
        torch.from_numpy(rows.y[test]),
        num_classes=rows.y.max() + 1,
        sample_weight=weight,
        matrix=getattr(metric, "needs_matrix", True),
    )
    return metric(confusion).item()


def _dense(X: Any) -> Any:
    return X.toarray() if sparse.issparse(X) else X  # gradient boosting takes no other


def _holm(p: np.ndarray) -> np.ndarray:
    """p-values adjusted for their number: the least is multiplied by it, the next by one less..."""
    order = p.argsort()
    adjusted = np.empty_like(p)
    adjusted[order] = np.maximum.accumulate((len(p) - np.arange(len(p))) * p[order]).clip(max=1)
    return adjusted
