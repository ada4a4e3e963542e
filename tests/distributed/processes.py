"""Real processes over gloo: `run(function, size)` calls function(rank, size, ...) in each."""

import os
import queue
import tempfile
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

PRELOADED = ["evalign", "torch._dynamo", "transformers.trainer", "lightning.pytorch"]
TIMEOUT = 60  # seconds; a hang is a failure, not a wait


def run(function, size, *arguments, timeout=TIMEOUT):
    """Return the results of all ranks, or raise with the traceback of the first that failed."""
    context = mp.get_context("forkserver")
    # Imported once, not per rank, and by the first call for all; DDP and optimisers import the
    # compiler.
    context.set_forkserver_preload([*PRELOADED, function.__module__])
    results = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        meeting = os.path.join(folder, "meeting")
        workers = [
            context.Process(target=_work, args=(function, r, size, meeting, results, arguments))
            for r in range(size)
        ]
        for worker in workers:
            worker.start()
        found = {}
        try:
            while len(found) < size:
                rank, result, error = results.get(timeout=timeout)
                assert error is None, error
                found[rank] = result
        except queue.Empty:
            raise AssertionError(f"ranks {set(range(size)) - set(found)} gave no answer") from None
        finally:
            for worker in workers:
                worker.join(5)
                worker.kill()
    return [found[rank] for rank in range(size)]


def _work(function, rank, size, meeting, results, arguments):
    torch.set_num_threads(1)
    try:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{meeting}",
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=20),
        )
        results.put((rank, function(rank, size, *arguments), None))
        dist.destroy_process_group()
    except BaseException:
        results.put((rank, None, f"rank {rank}: {traceback.format_exc()}"))
