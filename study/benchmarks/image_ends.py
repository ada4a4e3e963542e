"""The papers' trainings of images to their end, many side by side on one GPU.

    python study/benchmarks/image_ends.py east fashion --side 9 --seconds 540

Those of EAST's Table 1 on CIFAR-10 go on until 50 epochs bring no better validation loss, at most
300; those of SurF's figures have the paper's 120 epochs. "fashion-first" and "airplane-first" are
losses of SurF that stayed at one class, after ten epochs of cross-entropy. What the file has is not
trained again, and what is not finished in time is lost: begin with what can end. What would not end
is not begun.
"""

import argparse
import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")  # else streams share eight queues

import torch
from evalign_study.records.results import Results
from evalign_study.records.run import Run
from evalign_study.trainers.images import ImageTraining
from evalign_study.trainers.side_by_side import train_side_by_side

OUT = Path(__file__).parents[1] / "results" / "image-ends.jsonl.gz"
# With the learning rate that the search chose at 60 epochs; of `aligned_f1` that of `anchored_f1`,
# which on classes of one size is the same loss, of the constant temperature that of F1*.
EAST = {
    "east_f1": 1e-4,
    "cross_entropy": 1e-3,
    "dice": 1e-3,
    "east_accuracy": 1e-4,
    "mcfbeta_f1": 1e-4,
    "aligned_f1": 1e-3,
    "east_mcc": 1e-4,
}
COOLED = ("east_f1", "east_accuracy", "east_mcc")
# What the text says that the figures of convergence draw, and class-balanced BCE; and what only the
# scatter plots of the first repetition have. Each in the order of what the claims need.
SURF = [
    "surf_1",
    "balanced_cross_entropy",
    "surf_3",
    "surf_2",
    "balanced_macro_soft_1",
    "mae",
    "surf_0.5",
]
SCATTERED = [f"balanced_macro_soft_{beta}" for beta in ("2", "3", "0.5")]
FIRST = 10  # epochs of cross-entropy
STAYED = {  # at one class, in the first repetition
    "fashion": ["surf_2", "balanced_macro_soft_1", "surf_3", *SCATTERED[:2]],
    "airplane": ["surf_1", "surf_0.5", "surf_3", "balanced_macro_soft_1", "surf_2"],
}
FIGURES = {  # data set, network, repetitions
    "fashion": ("fashion_mnist_tshirt", "resnet18", 5),
    "airplane": ("cifar10_airplane", "resnet34", 3),
}
PARTS = ["east", *FIGURES, *(f"{part}-first" for part in STAYED)]


def runs_of(part: str) -> list[Run]:
    """List the runs of a part, the most wanted first."""
    if part.endswith("-first"):
        whole = part.removesuffix("-first")
        longer = {run.method: run for run in runs_of(whole) if run.seed == 1}
        return [longer[method].but(cross_entropy_first=FIRST) for method in STAYED[whole]]
    if part == "east":
        given = Run(
            dataset="cifar10",
            variant="paper",
            method="",
            network="darknet19",
            batch_size=256,
            epochs=300,
            patience=50,
        )
        return [
            given.but(
                method=method,
                learning_rate=learning_rate,
                rate=0.9 if method in COOLED else None,
                seed=seed,
            )
            for method, learning_rate in EAST.items()
            for seed in (1, 2, 3)
        ]
    dataset, network, repetitions = FIGURES[part]
    given = Run(
        dataset=dataset,
        variant="paper",
        method="",
        network=network,
        batch_size=100,
        learning_rate=0.01,
        epochs=120,
    )
    return [
        given.but(method=method, seed=seed, split_seed=seed)
        for seed in range(1, repetitions + 1)
        for method in (SURF if seed > 1 else SURF + SCATTERED)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="+", help=f"{', '.join(PARTS)}; fashion:8 for 8 more")
    parser.add_argument("--side", type=int, default=9, help="trainings at a time")
    parser.add_argument("--seconds", type=float, required=True, help="no epoch begins after them")
    parser.add_argument("--assessors", type=int, default=5, help="processes that choose decisions")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    results = Results(arguments.out)
    runs: list[Run] = []
    for name, _, most in (part.partition(":") for part in arguments.parts):
        wanted = [run for run in runs_of(name) if run not in runs]
        missing = [run for run in wanted if run.key not in results.keys]
        runs += missing[: int(most) if most else None]
    print(f"{len(runs)} to train", flush=True)
    # Networks of one kind share their code, and each is compiled for itself.
    torch._dynamo.config.recompile_limit = 256  # pyright: ignore[reportPrivateUsage]
    torch._dynamo.config.accumulated_recompile_limit = 1024  # pyright: ignore[reportPrivateUsage]

    with ProcessPoolExecutor(arguments.assessors, get_context("spawn")) as assessors:
        unfinished = train_side_by_side(
            ImageTraining,
            runs,
            results.append,
            side=arguments.side,
            seconds=arguments.seconds,
            assessors=assessors,
        )
    for run in unfinished:
        print(f"not finished: {run.dataset} {run.method} {run.seed}", flush=True)


if __name__ == "__main__":
    main()
