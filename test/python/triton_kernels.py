"""A Triton kernel. Triton reads its source, so it stands in a file of its own."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def add(x, y, out, count, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    value = tl.load(x + places, mask=inside) + tl.load(y + places, mask=inside)
    tl.store(out + places, value, mask=inside)
