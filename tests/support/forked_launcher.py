"""Importing this module lets ``subprocess.run`` of torch's launcher fork this process, which has imported torch.

A launcher and each of its workers would take seconds to import it. This is for the kernel of notebooks.
"""

import os
import re
import runpy
import socket
import subprocess
import sys
import traceback

run = subprocess.run


def forked(command, *args, **options):
    """The output of ``python -m torch.distributed.run --standalone --nproc-per-node=N script``, and of other calls."""
    if "torch.distributed.run" not in command:
        return run(command, *args, **options)
    world = int(re.search(r"--nproc-per-node=(\d+)", " ".join(command))[1])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    read, write = os.pipe()
    workers = []
    for rank in range(world):
        if not (worker := os.fork()):
            place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1"}
            os.environ.update({name: str(value) for name, value in {**place, "MASTER_PORT": port}.items()})
            be(command[-1], write)
        workers.append(worker)
    os.close(write)
    with os.fdopen(read) as output:
        printed = output.read()
    failed = {os.waitpid(worker, 0)[1] for worker in workers} != {0}
    return subprocess.CompletedProcess(command, int(failed), printed, printed)


def be(script, output):
    """Be a worker from here on."""
    import torch

    torch.set_num_threads(1)  # threads are not forked
    status = 1
    try:
        with os.fdopen(output, "w") as sys.stdout:
            try:
                runpy.run_path(script, run_name="__main__")
                status = 0
            except BaseException:
                traceback.print_exc(file=sys.stdout)
    finally:
        os._exit(status)


subprocess.run = forked
