"""Time of the default recipe over that of cross-entropy, by the same estimator, in one run.

    python study/benchmarks/recipe_time.py --out study/results/recipe_time.json

Both fit the same network on the same rows for the same number of epochs, with all that
`AlignedClassifier.fit` does. A round times both once, in alternating order. The ratio of a data set
is that of the medians over rounds, and the ratio reported first is the mean over data sets.
"""

import argparse
import json
import os
import platform
import statistics
import time
from pathlib import Path

import torch
from evalign_study.trainers.prepared import prepare

import evalign
from evalign import AlignedClassifier

SETS = ("winequality_white", "satimage", "adult")
RECIPES = ("aligned", "cross_entropy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    ratios = {}
    for dataset in SETS:
        prepared = prepare(dataset, "sound")
        (X, y), held_out = prepared.training, prepared.validation
        took: dict[str, list[float]] = {recipe: [] for recipe in RECIPES}
        for turn in range(arguments.rounds + 1):  # the first round only warms up
            for recipe in RECIPES if turn % 2 else RECIPES[::-1]:
                clf = AlignedClassifier(
                    "f1" if prepared.classes == 2 else "f1_macro",
                    recipe=recipe,
                    network="mlp",
                    epochs=arguments.epochs,
                    patience=None,
                    device=arguments.device,
                    random_state=0,
                )
                start = time.perf_counter()
                clf.fit(X.numpy(), y.numpy(), validation_data=tuple(x.numpy() for x in held_out))
                took[recipe].append(time.perf_counter() - start)
        ours, theirs = (statistics.median(took[recipe][1:]) for recipe in RECIPES)
        ratios[dataset] = ours / theirs
        print(f"{dataset}: {ours:.2f} s and {theirs:.2f} s, {ours / theirs:.2f}", flush=True)
    result = {
        "ratio": statistics.mean(ratios.values()),
        "ratios": ratios,
        "epochs": arguments.epochs,
        "rounds": arguments.rounds,
        "device": torch.cuda.get_device_name() if arguments.device == "cuda" else "cpu",
        "threads": arguments.threads,
        "cpus": os.cpu_count(),
        "machine": f"{platform.machine()} {platform.processor()}".strip(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "torch": torch.__version__,
        "evalign": evalign.__version__,
    }
    arguments.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
