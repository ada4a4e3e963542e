"""How long `fit` takes with its defaults, beside others, by the number of rows.

    python benchmarks/fit_speed.py --out fit_speed.json
    python benchmarks/fit_speed.py --device cuda --out fit_speed_cuda.json
    python benchmarks/fit_speed.py --only auto blend --rows 1000 10000 --threads 1 --out blend.json

A table of 20 columns and two classes, one row in ten positive, is made for each number of rows.
`fit` is timed as a whole, from a NumPy array to a decision rule, and the F1 of 20,000 further rows
is given beside the seconds. "auto" is `AlignedClassifier`. The others: "blend", an
`AlignedEnsemble` with its defaults, which is what `evalign fit` trains; scikit-learn's histogram
gradient boosting with its defaults; and the loop that the authors of TabM give as an example, with
the defaults of their package (32 members, 512 wide, batches of 256 rows, early stopping after 16
epochs without a better validation score), until `--limit` seconds have passed. Their score is
accuracy and they clip gradients; here it is F1, and nothing is clipped.
"""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rtdl_num_embeddings import PiecewiseLinearEmbeddings, compute_bins
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import f1_score
from sklearn.preprocessing import QuantileTransformer
from tabm import TabM
from torch.nn import functional as F

import evalign
from evalign import AlignedClassifier, AlignedEnsemble
from evalign.training import holdout_split

COLUMNS, UNSEEN = 20, 20_000


def table(rows: int) -> tuple[np.ndarray, ...]:
    X, y = make_classification(
        rows + UNSEEN,
        COLUMNS,
        n_informative=10,
        n_clusters_per_class=4,
        weights=[0.9],
        flip_y=0.02,
        random_state=0,
    )
    return X[:rows], y[:rows], X[rows:], y[rows:]


def fitted() -> dict[str, float]:
    """The clock and the processor's seconds when a fit is done."""
    return {"fitted": time.perf_counter(), "processor": time.process_time()}


def network(device: str) -> Callable[..., tuple[np.ndarray, dict[str, Any]]]:
    def fit(X: np.ndarray, y: np.ndarray, unseen: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
        clf = AlignedClassifier("f1", device=device, random_state=0).fit(X, y)
        took = {"epochs": len(clf.history_), **fitted()}
        return clf.predict(unseen), took

    return fit


def blend(X: np.ndarray, y: np.ndarray, unseen: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
    clf = AlignedEnsemble("f1", random_state=0).fit(X, y)
    took = {"folds": len(clf.models_["linear"]), **fitted()}
    return clf.predict(unseen), took


def boosting(X: np.ndarray, y: np.ndarray, unseen: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
    clf = HistGradientBoostingClassifier(random_state=0).fit(X, y)
    took = {"epochs": clf.n_iter_, **fitted()}
    return clf.predict(unseen), took


def example(device: str, limit: float) -> Callable[..., tuple[np.ndarray, dict[str, Any]]]:
    """TabM as its authors' example trains it."""

    def fit(X: np.ndarray, y: np.ndarray, unseen: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
        start = time.perf_counter()
        torch.manual_seed(0)
        kept, held_out = holdout_split(y)
        quantiles = max(min(len(kept) // 30, 1000), 10)
        scale = QuantileTransformer(
            n_quantiles=quantiles, output_distribution="normal", subsample=10**9
        )
        noise = np.random.default_rng(0).normal(0, 1e-5, X[kept].shape)
        scale.fit(X[kept] + noise)
        parts = (scale.transform(part) for part in (X[kept], X[held_out], unseen))
        rows, checked, new = (torch.as_tensor(p, dtype=torch.float32).to(device) for p in parts)
        target = torch.from_numpy(y[kept]).to(device)
        model = TabM.make(
            n_num_features=X.shape[1],
            d_out=2,
            num_embeddings=PiecewiseLinearEmbeddings(
                compute_bins(rows.cpu()), 16, activation=False, version="B"
            ),
        ).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=3e-4)

        @torch.no_grad()
        def probabilities(X: torch.Tensor) -> np.ndarray:
            model.eval()
            each = [model(x).softmax(2).mean(1) for x in X.split(4096)]
            return torch.cat(each).cpu().numpy()

        best, best_epoch, epoch, weights = -1.0, 0, 0, {}
        while epoch - best_epoch < 16 and time.perf_counter() - start < limit:
            epoch += 1
            model.train()
            for index in torch.randperm(len(rows), device=device).split(256):
                logits = model(rows[index])
                members = logits.shape[1]
                loss = F.cross_entropy(
                    logits.flatten(0, 1), target[index].repeat_interleave(members)
                )
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if time.perf_counter() - start > limit:
                    break
            score = f1_score(y[held_out], probabilities(checked).argmax(1))
            if score > best:
                best, best_epoch = score, epoch
                weights = {name: w.clone() for name, w in model.state_dict().items()}
        model.load_state_dict(weights)
        took = {"epochs": epoch, **fitted(), "limit": limit}
        return probabilities(new).argmax(1), took

    return fit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 10_000, 200_000])
    parser.add_argument("--only", nargs="+", help="some of: auto, blend, boosting, example")
    parser.add_argument("--limit", type=float, default=300, help="seconds for the example")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    device = arguments.device
    torch.set_num_threads(arguments.threads)
    contestants: dict[str, Callable[..., tuple[np.ndarray, dict[str, Any]]]] = {
        "auto": network(device),
        "blend": blend,
        "boosting": boosting,
        "example": example(device, arguments.limit),
    }
    # A blend finds its device by itself, so that it is timed only where it is asked for.
    chosen = arguments.only or [name for name in contestants if name != "blend"]
    # Not timed: the first optimiser of a process loads torch's compiler.
    AlignedClassifier("f1", epochs=1, device=device).fit(*table(200)[:2])
    found: list[dict[str, Any]] = []
    for rows in arguments.rows:
        X, y, unseen, truth = table(rows)
        for name in chosen:
            start, processor = time.perf_counter(), time.process_time()
            labels, took = contestants[name](X, y, unseen)
            seconds, done = time.process_time() - processor, took.pop("fitted")
            found.append(
                {
                    "rows": rows,
                    "name": name,
                    "seconds": done - start,
                    "predict_seconds": time.perf_counter() - done,
                    "processor_seconds": seconds,
                    "fit_processor_seconds": took.pop("processor") - processor,
                    "f1": f1_score(truth, labels),
                    **took,
                }
            )
            print(found[-1], file=sys.stderr, flush=True)
    packages = ("torch", "scikit-learn", "tabm", "rtdl-num-embeddings", "numpy")
    result = {
        "columns": COLUMNS,
        "found": found,
        "device": torch.cuda.get_device_name() if device.startswith("cuda") else "cpu",
        "threads": arguments.threads,
        "cpus": os.cpu_count(),
        "machine": f"{platform.machine()} {platform.processor()}".strip(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
        "evalign": evalign.__version__,
    }
    text = json.dumps(result, indent=2)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
