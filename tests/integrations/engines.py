"""Rows for the tests of all engines, and the variables that a launcher would set."""

import os
import subprocess
import sys

import torch

CLASSES = 3


def made_rows(count, seed=0):
    """Make rows of three classes that a linear network can learn."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(CLASSES, (count,), generator=generator)
    x = torch.randn(count, 4, generator=generator, dtype=torch.float64)
    return x + torch.nn.functional.one_hot(y, 4), y


def as_if_launched(rank, size):
    """Set the variables of torchrun; the process group exists already, so no address is used."""
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "1",
        "TORCHELASTIC_RUN_ID": "test",
    }


def in_a_new_process(script, *arguments):
    """Run a script that knows torch and evalign alone, and return what it prints."""
    refuse = "import sys\nsys.modules |= dict.fromkeys(['lightning', 'transformers'])\n"
    command = [sys.executable, "-c", refuse + script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
