"""Run all attacks, or those whose name holds a word given: `python -m attacks [WORD]`."""

import os
import sys
import tempfile
import time
import warnings
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # the last bits of a resumed fit depend on it

import numpy as np
import torch

from attacks import calls, files, folders, labels, processes, trees
from attacks.judge import outcome
from attacks.made import Made

ATTACKS = calls.ATTACKS | labels.ATTACKS | files.ATTACKS | folders.ATTACKS | trees.ATTACKS
ATTACKS |= processes.ATTACKS
SEED = 0


def main() -> int:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    word, lines, broken = " ".join(sys.argv[1:]), [], []
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, attack) in enumerate(ATTACKS.items()):
            if word not in name:
                continue
            start, tried, held = time.perf_counter(), 0, 0
            Made.folder = Path(folder)
            for case in attack(np.random.default_rng([SEED, number])):
                why = outcome(case)
                tried, held = tried + 1, held + (why is None)
                if why is not None:
                    broken.append(f"{name}: {case.name}: {why}")
            took = time.perf_counter() - start
            lines.append(f"| {name} | {tried:,} | {held:,} |")
            print(f"{name}: {held} of {tried} held, {took:.0f} s", file=sys.stderr, flush=True)
    print("| attack | tried | held |", "| --- | ---: | ---: |", *lines, sep="\n")
    print(*broken, sep="\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
