"""The papers' protocol for tables of features: a grid on one seed, then trials of what it chose.

Every method has the same split and the same rows. Of the runs of a grid all that share a batch
size train together (`training.many`).
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch.func import functional_call

from evalign import data
from evalign.core.checks import require
from evalign.core.metrics import MetricFunction, resolve
from evalign.decisions import fit_decision
from evalign.study.methods import NETWORKS, cooling, make
from evalign.study.prepared import Prepared, Rows, prepare
from evalign.study.records import Record, record
from evalign.study.run import LOSS, Run, scores, triples
from evalign.training import Settings
from evalign.training.many import Member, Trained, fit_many

GRID_SEED = 0  # the trials have the seeds after it
BATCH_SIZES = (128, 256, 512, 1024, 2048)  # EAST E.4
LARGE_BATCHES = {"creditcard": (4096, 8192)}  # printed as 4069
LEARNING_RATES = (0.01, 0.001, 0.0001)
DROPOUTS = (0.25, 0.5)
RATES = (0.8, 0.9)
THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # BtG averages over them
OPTIMIZER = {"schedule": "constant", "warmup": 0.0, "clip_norm": None, "weight_decay": 0.01}
# What the runs of a stack have in common.
SHARED = (
    "dataset",
    "variant",
    "network",
    "batch_size",
    "epochs",
    "patience",
    "split_seed",
    "imbalance",
)
NUMBERS = 2**33 if torch.cuda.is_available() else 2**29  # in a stack, that is 32 or 2 GiB
MOST_TUNED = 100  # classes; with more, fitting a rule takes longer than training
BLOCK = 2**15  # rows at a time, where no gradient is needed


def grid(
    dataset: str,
    variant: Any,
    methods: Iterable[str],
    *,
    network: str = "mlp",
    epochs: int = 500,
    patience: int = 50,
    quick: bool = False,
    **fixed: Any,
) -> list[Run]:
    """All configurations of EAST E.4 for each method, on `GRID_SEED`.

    Args:
        dataset: a name of `evalign.data`.
        variant: "paper" or "sound", see `Run`.
        methods: names of `methods.METHODS`.
        network: a name of `methods.NETWORKS`.
        epochs: the most there may be.
        patience: 50 in EAST, 100 in MC-Fβ and BtG.
        quick: one configuration for each method, and two epochs.
        fixed: further fields of `Run`; one of the grid's own is then no longer searched.

    Examples:
        >>> len(grid("adult", "paper", ["cross_entropy"])), len(grid("adult", "paper", ["east_f1"]))
        (30, 60)
    """
    axes: dict[str, Sequence[Any]] = {
        "batch_size": BATCH_SIZES + LARGE_BATCHES.get(dataset, ()),
        "learning_rate": LEARNING_RATES,
        "dropout": DROPOUTS if network != "linear" else (0.0,),
        "rate": RATES,
    }
    if quick:
        epochs, axes = 2, {"batch_size": [2048], "learning_rate": [0.001], "dropout": [0.25]}
        axes["rate"] = RATES[-1:]
    counts = torch.tensor(data.card(dataset).counts)
    runs = []
    for method in methods:
        annealed = make(method, counts, dataset).annealed
        own = axes | ({} if annealed else {"rate": [None]}) | {k: [v] for k, v in fixed.items()}
        for values in itertools.product(*own.values()):
            runs.append(
                Run(
                    dataset=dataset,
                    variant=variant,
                    method=method,
                    network=network,
                    epochs=epochs,
                    patience=patience,
                    seed=GRID_SEED,
                    **dict(zip(own, values, strict=True)),
                )
            )
    return runs


def chosen(records: Iterable[Record], method: str, criterion: str, **of: Any) -> Run:
    """The best run of a grid, by its validation rows.

    Args:
        records: of any runs.
        method: whose.
        criterion: "loss", the papers' selection, or the name of a metric.
        of: further fields of `Run` to match, such as dataset, variant and network.
    """
    match = {"method": method, "seed": GRID_SEED, **of}
    found = [
        record
        for record in records
        if match.items() <= record["run"].items() and criterion in record["picks"]
    ]
    got, cure = f"none of {match}", "Run the grid first."
    require(bool(found), "chosen", "records", f"hold a pick by {criterion!r}", got, cure)

    def score(record: Record) -> float:
        pick = record["picks"][criterion]
        return -pick["validation_loss"] if criterion == LOSS else pick["validation"][criterion]

    return Run(**max(found, key=score)["run"])


def trials(
    records: Sequence[Record],
    methods: Iterable[str],
    criteria: Iterable[str],
    *,
    count: int = 10,
    **of: Any,
) -> list[Run]:
    """`count` seeds of every configuration that a criterion has chosen; each run once."""
    pairs = itertools.product(methods, criteria)
    best = [chosen(records, method, criterion, **of) for method, criterion in pairs]
    seeds = range(GRID_SEED + 1, GRID_SEED + 1 + count)
    return [run.but(seed=seed) for run in dict.fromkeys(best) for seed in seeds]


def units(runs: Iterable[Run]) -> list[list[Run]]:
    """Runs that train together, no more of them than memory holds."""
    found: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        found.setdefault(_shared(run), []).append(run)
    parts = []
    for group in found.values():
        size = max(1, NUMBERS // _numbers(group[0]))
        parts += [group[i : i + size] for i in range(0, len(group), size)]
    return parts


def _shared(run: Run) -> tuple[Any, ...]:
    return tuple(getattr(run, name) for name in SHARED)


def _numbers(run: Run) -> int:
    """What a member of a stack holds: its weights, some ten times, and a batch's activations."""
    card = data.card(run.dataset)
    features = int(np.prod(card.shape))
    network = NETWORKS[run.network](features, len(card.counts), run.dropout)
    weights = sum(p.numel() for p in network.parameters())
    width = sum(m.out_features for m in network.modules() if isinstance(m, nn.Linear))
    return 10 * weights + 8 * run.batch_size * width


def train(runs: Sequence[Run]) -> Iterator[Record]:
    """Train runs of one unit, on a GPU if there is one, and assess every pick on the test rows."""
    first = runs[0]
    one = len({_shared(run) for run in runs}) == 1
    require(one, "train", "runs", f"share {', '.join(SHARED)}", f"{len(runs)} runs that do not")
    cuda = torch.cuda.is_available()
    if cuda:
        torch.set_float32_matmul_precision("high")  # TF32; the records say so
    prepared = prepare(first.dataset, first.variant, first.split_seed, first.imbalance)
    names = dict.fromkeys(run.method for run in runs)
    methods = {name: make(name, prepared.counts, first.dataset) for name in names}
    features = prepared.training[0].shape[1]
    build = partial(NETWORKS[first.network], features, prepared.classes, 0.0)
    rows = prepared.to("cuda" if cuda else "cpu")
    fitted = fit_many(
        build,
        [_member(run, methods[run.method].loss) for run in runs],
        *rows.training,
        validation=rows.validation,
        metric=prepared.metrics[0],
        settings=Settings(
            epochs=first.epochs,
            batch_size=first.batch_size,
            patience=first.patience,
            watch="loss",
            **OPTIMIZER,
        ),
        also={name: resolve(name) for name in prepared.metrics},
    )
    network, calls = build(), []
    for run, trained in zip(runs, fitted, strict=True):
        for criterion, outputs in _outputs(trained, network, rows):
            target = methods[run.method].target if criterion == LOSS else criterion
            # A point of the grid is chosen by its validation rows, and no table shows it.
            tuned = run.seed != GRID_SEED and prepared.classes <= MOST_TUNED
            metric = target if tuned else None
            thresholds = THRESHOLDS if run.network == "mlp32" else ()
            calls.append(delayed(assess)(*outputs, metric, rows.metrics, thresholds=thresholds))
    # A GPU must not wait for one core of many; the grid's runs are no work, for no rule is fitted.
    many = cuda and any(run.seed != GRID_SEED for run in runs)
    assessed: Any = iter(Parallel(n_jobs=-1 if many else 1)(calls))
    lengths = np.array([len(trained.history) for trained in fitted])
    for run, trained in zip(runs, fitted, strict=True):
        shares = [e["seconds"] / (lengths >= e["epoch"]).sum() for e in trained.history]
        yield record(
            run,
            epochs=len(shares),
            capped=run.capped(len(shares), _best(trained)),
            seconds=float(sum(shares)),
            picks={name: epoch | next(assessed) for name, epoch in _picks(trained).items()},
        )


def _picks(trained: Trained) -> dict[str, dict[str, Any]]:
    """The best epoch by each criterion; none of one that has diverged at once."""
    found = {}
    for epoch in trained.history:
        for criterion in epoch["best_of"]:
            found[criterion] = {
                "epoch": epoch["epoch"],
                "validation_loss": epoch["validation_loss"],
                "validation": epoch["also"],
            }
    return found


def _outputs(
    trained: Trained, network: nn.Module, rows: Prepared
) -> Iterator[tuple[str, tuple[Rows, Rows]]]:
    """For every pick the logits and labels of the validation and of the test rows."""
    known: dict[int, tuple[Rows, Rows]] = {}  # several criteria may pick one epoch
    for criterion, pick in _picks(trained).items():
        if pick["epoch"] not in known:
            validation, test = (
                (_logits(network, trained.best[criterion], X), y.cpu())
                for X, y in (rows.validation, rows.test)
            )
            known[pick["epoch"]] = validation, test
        yield criterion, known[pick["epoch"]]


@torch.no_grad()
def _logits(network: nn.Module, weights: dict[str, Tensor], X: Tensor) -> Tensor:
    network = network.to(X.device).eval()
    parts = [functional_call(network, weights, (x,)) for x in X.split(BLOCK)]
    return torch.cat(parts).cpu()


def _member(run: Run, loss: nn.Module) -> Member:
    annealing = None if run.rate is None else cooling(run.rate, run.patience)
    return Member(loss, run.learning_rate, run.seed, run.dropout, annealing)


def _best(trained: Trained) -> int:
    return max((epoch["epoch"] for epoch in trained.history if epoch["best"]), default=0)


def assess(
    validation: Rows,
    test: Rows,
    metric: str | MetricFunction | None,
    names: tuple[str, ...],
    *,
    thresholds: Sequence[float] = (),
) -> dict[str, Any]:
    """The "test" of a pick, and of two classes the "auroc".

    Args:
        validation: (logits, y), on which the tuned decision is fitted.
        test: (logits, y) to assess.
        metric: what the tuned decision is for; None for no such decision.
        names: the metrics to report.
        thresholds: on the probability of class 1, as further decisions.
    """
    logits, y = test
    labels = {"argmax": logits.argmax(1)}
    if metric is not None:
        labels["tuned"] = fit_decision(*validation, metric=metric, decision="tuned")(logits)
    for threshold in thresholds:
        labels[f"{threshold:g}"] = (logits.double().softmax(1)[:, 1] > threshold).long()
    found: dict[str, Any] = {}
    for decision, predicted in labels.items():
        matrix = triples(predicted, y)
        found[decision] = {"matrix": matrix, **scores(matrix, logits.shape[1], names)}
    if logits.shape[1] > 2:
        return {"test": found}
    return {"test": found, "auroc": float(roc_auc_score(y, (logits[:, 1] - logits[:, 0]).double()))}
