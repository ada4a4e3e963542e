"""Cross-entropy beside MetricLoss on scikit-learn's digits, made long-tailed (20 : 1).

A small network, ten random splits, full batches; test scores, mean and standard deviation. All
methods share splits, initial weights, optimiser and number of steps; nothing is tuned on the test
rows. Takes about half a minute on two cores.
"""

import statistics

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn import functional as F

from evalign import Confusion, MetricLoss, metrics

TARGET = "f1_macro"
REPORTED = [TARGET, "balanced_accuracy", "accuracy"]
SPLITS = 10
STEPS = 150


def long_tailed(y: torch.Tensor, seed: int) -> torch.Tensor:
    """Rows to keep: all of digit 0, and geometrically fewer of each next one, down to 1 in 20."""
    generator = torch.Generator().manual_seed(seed)
    kept = []
    for digit in range(10):
        rows = (y == digit).nonzero().squeeze(1)
        share = 20 ** (-digit / 9)
        kept.append(
            rows[torch.randperm(len(rows), generator=generator)[: round(share * len(rows))]]
        )
    return torch.cat(kept)


def train(X: torch.Tensor, y: torch.Tensor, losses: list, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
    for _ in range(STEPS):
        optimizer.zero_grad()
        logits = network(X)
        sum(loss(logits, y) for loss in losses).backward()
        optimizer.step()
    return network.eval()


def main() -> None:
    torch.set_num_threads(1)  # the network is too small to gain from more
    X, y = load_digits(return_X_y=True)
    X, y = torch.tensor(X, dtype=torch.float32) / 16, torch.tensor(y)
    methods = {
        "cross-entropy": [F.cross_entropy],
        "MetricLoss": [MetricLoss(TARGET)],
        "cross-entropy + MetricLoss": [F.cross_entropy, MetricLoss(TARGET)],
    }
    scores = {method: {name: [] for name in REPORTED} for method in methods}
    for seed in range(SPLITS):
        rows, test = train_test_split(
            torch.arange(len(y)), test_size=0.5, stratify=y, random_state=seed
        )
        rows = rows[long_tailed(y[rows], seed)]
        for method, losses in methods.items():
            network = train(X[rows], y[rows], losses, seed)
            with torch.no_grad():
                confusion = Confusion.from_predictions(network(X[test]).argmax(1), y[test])
            for name in REPORTED:
                scores[method][name].append(metrics.resolve(name)(confusion).item())

    print(f"digits, long-tailed 20:1; test scores over {SPLITS} splits; trained for {TARGET}\n")
    print(f"{'':28}" + "".join(f"{name:>22}" for name in REPORTED))
    for method, by_name in scores.items():
        cells = (f"{statistics.mean(v):.3f} ± {statistics.stdev(v):.3f}" for v in by_name.values())
        print(f"{method:28}" + "".join(f"{cell:>22}" for cell in cells))


if __name__ == "__main__":
    main()
