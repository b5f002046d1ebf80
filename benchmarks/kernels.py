"""``python -m benchmarks --kernels``: compile the kernels of Triton for GPUs, without one, and print what they use.

A register that is spilled lies in slow memory, and each access to it waits. Shared memory bounds how many blocks of
threads a processor of the GPU holds at a time.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

# Compute capabilities of the A100 and the H100, and the bytes of shared memory that a block of threads can have there.
SHARED = {80: 163 * 1024, 90: 227 * 1024}

# Dimensions of the embeddings.
DIMENSIONS = 128

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
    """Compile the kernel that counts a label per query, for each device, dtype and precision."""
    from torchrank.engine import kernels

    for capability in SHARED:
        for dtype, precision in PRECISIONS:
            yield _compiled(kernels, capability, dtype, precision)


def _compiled(kernels: Any, capability: int, dtype: str, precision: str) -> Kernel:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    tile = kernels.tile(DIMENSIONS, precision)
    pointers = {"queries": dtype, "items": dtype, "judged_scores": "fp32"}
    pointers |= dict.fromkeys(("greater", "equal", "retrieved"), "i64") | {"has_nan": "i1", "nonfinite": "i32"}
    numbers = ("num_queries", "num_items", "size", "step", "entries")
    constants: dict[str, Any] = {"lanes": 1, "careful": False, "precision": precision}
    constants |= {"tall": tile.tall, "wide": tile.wide, "depth": tile.depth, "single": tile.single}
    signature = {name: f"*{kind}" for name, kind in pointers.items()}
    signature |= dict.fromkeys(numbers, "i32") | dict.fromkeys(constants, "constexpr")
    # As at run time: torch aligns tensors to 16 bytes, and dimensions of embeddings are multiples of 16.
    aligned = {
        (n,): [["tt.divisibility", 16]] for n, name in enumerate(signature) if name in pointers or name == "size"
    }
    kernel = triton.compile(
        ASTSource(kernels._count_products, signature, constants, aligned),
        target=GPUTarget("cuda", capability, 32),
        options={"num_warps": tile.num_warps, "num_stages": tile.num_stages},
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


def table() -> str:
    """The table that the command prints."""
    lines = ["| device | embeddings | products | registers | spilled bytes | shared KB | wgmma | mma |"]
    lines.append("| --- " * 8 + "|")
    for k in compiled():
        shown = (f"sm_{k.capability}", k.dtype, k.precision, k.registers, k.spilled, k.shared // 1024)
        lines.append("| " + " | ".join(map(str, (*shown, k.wgmma, k.mma))) + " |")
    return "\n".join(lines)
