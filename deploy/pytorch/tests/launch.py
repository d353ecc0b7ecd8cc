"""Starts ranks for tests: forks of this process, which has imported torch already, connected by Gloo on CPUs."""
import os
import pickle
import shutil
import sys
import tempfile
import traceback
from datetime import timedelta

import torch
import torch._dynamo  # DistributedDataParallel imports it, which takes seconds: once, before the ranks are forked
import torch.distributed as dist

import hetero_train  # noqa: F401  (imported once, before the ranks are forked)


def run(work, ranks=2, timeout=60.0, env=None, connect=True):
    """Calls work(rank, folder) in each rank, and returns the results by rank. An exception of a rank is its result.

    connect: create the process group before the call; False: work creates it.
    """
    folder = tempfile.mkdtemp()
    try:
        pids = []
        for rank in range(ranks):
            sys.stdout.flush()
            pid = os.fork()
            if pid:
                pids.append(pid)
                continue
            code = 1
            try:
                os.environ.update(env or {}, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks),
                                  LOCAL_WORLD_SIZE=str(ranks),
                                  XDG_CACHE_HOME=os.path.join(folder, "cache"))
                torch.set_num_threads(1)
                try:
                    if connect:
                        dist.init_process_group("gloo", init_method="file://" + os.path.join(folder, "store"),
                                                rank=rank, world_size=ranks, timeout=timedelta(seconds=timeout))
                    result = work(rank, folder)
                    if dist.is_initialized():
                        dist.destroy_process_group()
                except Exception as e:
                    if os.environ.get("HETERO_TEST_TRACE"):
                        traceback.print_exc()
                    result = e
                with open(os.path.join(folder, f"result{rank}"), "wb") as f:
                    pickle.dump(result, f)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        for pid in pids:
            os.waitpid(pid, 0)
        results = []
        for rank in range(ranks):
            try:
                with open(os.path.join(folder, f"result{rank}"), "rb") as f:
                    results.append(pickle.load(f))
            except FileNotFoundError:
                results.append(RuntimeError(f"rank {rank} was killed"))
        return results
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # the bridge of a rank that failed may still write
