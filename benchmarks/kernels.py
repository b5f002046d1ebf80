"""``python -m benchmarks --kernels``: compile the kernels of Triton for GPUs, without one, and print what they use.

A register that is spilled lies in slow memory, and each access to it waits. Shared memory bounds how many blocks of
threads a processor of the GPU holds at a time.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from torchrank.engine.compiled import _compare
from torchrank.hardware import costs

# Compute capabilities of the A100 and the H100, and the bytes of shared memory that a block of threads can have there.
SHARED = {80: 163 * 1024, 90: 227 * 1024}

# Types of embeddings, and the precisions of their products.
PRECISIONS = (("bf16", "ieee"), ("fp32", "tf32"), ("fp32", "tf32x3"))


class Kernel(NamedTuple):
    """A compiled kernel: its resources and its instructions."""

    capability: int
    dtype: str
    precision: str
    registers: int
    #: bytes of registers that each thread keeps in memory instead
    spilled: int
    #: bytes of a block
    shared: int
    #: instructions that multiply tiles: of sm_90, and of earlier devices
    wgmma: int
    mma: int


def compiled() -> Iterator[Kernel]:
    """Compile the kernel that counts, for each device, dtype and precision."""
    from torchrank.engine import fused_kernels

    for capability in SHARED:
        for dtype, precision in PRECISIONS:
            yield _compiled(fused_kernels, capability, dtype, precision)


def _compiled(kernels: Any, capability: int, dtype: str, precision: str) -> Kernel:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    tile = kernels.TILES[precision]
    pointers = {"queries": dtype, "items": dtype, "judged_scores": "fp32"}
    pointers |= dict.fromkeys(("greater", "equal", "retrieved", "nan"), "i32")
    numbers = ("num_queries", "num_items", "size")
    constants = {"entries": costs.now.fused, "precision": precision, "tile": tile.side, "depth": tile.depth}
    signature = {name: f"*{kind}" for name, kind in pointers.items()}
    signature |= dict.fromkeys(numbers, "i32") | dict.fromkeys(constants, "constexpr")
    # As at run time: torch aligns tensors to 16 bytes, and dimensions of embeddings are multiples of 16.
    aligned = {
        (n,): [["tt.divisibility", 16]] for n, name in enumerate(signature) if name in pointers or name == "size"
    }
    kernel = triton.compile(
        ASTSource(kernels._count, signature, constants, aligned),
        target=GPUTarget("cuda", capability, 32),
        options={"num_warps": tile.warps, "num_stages": kernels.STAGES},
    )
    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        command = [str(tools / "cuobjdump"), "--dump-resource-usage", file.name]
        usage = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    registers, stack = map(int, re.search(r"REG:(\d+) STACK:(\d+)", usage).groups())  # type: ignore[union-attr]
    wgmma, mma = (kernel.asm["ptx"].count(name) for name in ("wgmma.mma_async", "mma.sync"))
    return Kernel(capability, dtype, precision, registers, stack, kernel.metadata.shared, wgmma, mma)


def of_compiled(entries: int) -> int:
    """Kernels of Triton that torch.compile makes of the counts among scores, for some right answers of each query.

    The compiler is told that the CPU is an H100. It writes the code, and is stopped before it runs it. On a GPU it can
    cut the rows of a few queries, whose parts a second kernel adds up.
    """
    import torch
    import triton
    from torch._inductor import config
    from torch._inductor.graph import GraphLowering
    from triton.backends.compiler import GPUTarget
    from triton.backends.driver import DriverBase

    class Driver(DriverBase):
        is_active = classmethod(lambda cls: True)
        get_current_target = lambda self: GPUTarget("cuda", 90, 32)  # noqa: E731
        get_active_torch_device = get_benchmarker = map_python_to_cpp_type = lambda *_: None

    codegen, written = GraphLowering.codegen, []

    def stop(graph: Any) -> Any:
        written.append(str(getattr(codegen(graph)[0], "value", "")))
        raise InterruptedError

    triton.runtime.driver.set_active(Driver())
    GraphLowering.codegen = stop
    try:
        with config.patch(cpu_backend="triton", compile_threads=1, fx_graph_cache=False), suppress(Exception):
            compiled = torch.compile(_compare, dynamic=True, fullgraph=True)
            compiled(torch.zeros(64, 5000), torch.zeros(64, entries), True)
    finally:
        GraphLowering.codegen = codegen
    (code,) = written
    return code.count("@triton.jit")


def table() -> str:
    """The table that the command prints."""
    lines = ["| device | embeddings | products | registers | spilled bytes | shared KB | wgmma | mma |"]
    lines.append("| --- " * 8 + "|")
    for k in compiled():
        shown = (f"sm_{k.capability}", k.dtype, k.precision, k.registers, k.spilled, k.shared // 1024)
        lines.append("| " + " | ".join(map(str, (*shown, k.wgmma, k.mma))) + " |")
    one, several = of_compiled(1), of_compiled(3)
    lines.append(f"torch.compile, scores [query, item]: kernels for a label per query {one}, for three {several}")
    return "\n".join(lines)
