# ===- test_dtype_refusals.py - Dtypes that eager refuses ----------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""What eager's kernels refuse and fake implementations let pass is refused, too.

A compiled kernel could compute the floor of a bool; a number without a meaning would be
the result.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool]

OF_ONE: dict[str, Callable] = {
    "abs": torch.abs,
    "adaptive_avg_pool": lambda x: F.adaptive_avg_pool2d(x, 2),
    "avg_pool": lambda x: F.avg_pool2d(x, 2),
    "ceil": torch.ceil,
    "clamp": lambda x: x.clamp(0, 1),
    "elu": F.elu,
    "floor": torch.floor,
    "frac": torch.frac,
    "gelu": F.gelu,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "hardtanh": F.hardtanh,
    "leaky_relu": F.leaky_relu,
    "log_softmax": lambda x: F.log_softmax(x, 1),
    "logsigmoid": F.logsigmoid,
    "max_pool": lambda x: F.max_pool2d(x, 2),
    "mean": torch.mean,
    "mish": F.mish,
    "neg": torch.neg,
    "pad_reflect": lambda x: F.pad(x, (1, 1), mode="reflect"),
    "pad_replicate": lambda x: F.pad(x, (1, 1), mode="replicate"),
    "relu": F.relu,
    "relu6": F.relu6,
    "round": torch.round,
    "rsub": lambda x: 2 - x,
    "silu": F.silu,
    "softmax": lambda x: F.softmax(x, 1),
    "softmax_of_columns": lambda x: F.softmax(x, 0),
    "softplus": F.softplus,
    "square": torch.square,
    "std": torch.std,
    "sub_number": lambda x: x - 2,
    "threshold": lambda x: F.threshold(x, 1, 2),
    "trunc": torch.trunc,
    "unfold": lambda x: F.unfold(x, 2),
    "var": torch.var,
}

OF_TWO: dict[str, Callable] = {
    "addcdiv": lambda x, y: torch.addcdiv(x, y, y),
    "addcmul": lambda x, y: torch.addcmul(x, y, y),
    "atan2": torch.atan2,
    "batch_norm": lambda x, y: F.batch_norm(x, y[0, 0, 0, :1], y[0, 0, 0, :1]),
    "bitwise_and": torch.bitwise_and,
    "div_floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "div_trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "floor_divide": torch.floor_divide,
    "fmod": torch.fmod,
    "gather": lambda x, y: x.gather(0, y),
    "group_norm": lambda x, y: F.group_norm(x, 1, y[0, 0, 0, :1], y[0, 0, 0, :1]),
    "heaviside": torch.heaviside,
    "layer_norm": lambda x, y: F.layer_norm(x, (4,), y[0, 0, 0], y[0, 0, 0]),
    "left_shift": torch.bitwise_left_shift,
    "lerp": lambda x, y: torch.lerp(x, y, 0.5),
    "logaddexp": torch.logaddexp,
    "masked_fill": lambda x, y: x.masked_fill(y, 1),
    "maximum": torch.maximum,
    "mse_loss": F.mse_loss,
    "remainder": torch.remainder,
    "right_shift": torch.bitwise_right_shift,
    "sub": torch.sub,
    "sub_scaled": lambda x, y: torch.sub(x, y, alpha=2),
    "where": lambda x, y: torch.where(x, y, y),
    "xlogy": torch.xlogy,
}


def raises(function: Callable, *arguments: torch.Tensor) -> bool:
    try:
        function(*arguments)
    except Exception:
        return True
    return False


def passes_as_fake(function: Callable, *arguments: torch.Tensor) -> bool:
    with FakeTensorMode() as mode:
        return not raises(function, *map(mode.from_tensor, arguments))


@pytest.mark.parametrize("name", [*OF_ONE, *OF_TWO])
@pytest.mark.filterwarnings("ignore")
def test_what_eager_refuses_is_refused(name):
    function, count = (OF_ONE[name], 1) if name in OF_ONE else (OF_TWO[name], 2)
    for dtypes in itertools.product(DTYPES, repeat=count):
        x = torch.ones(1, 1, 4, 4)
        arguments = [x.to(dtype) for dtype in dtypes]
        if raises(function, *arguments) and passes_as_fake(function, *arguments):
            torch._dynamo.reset()
            compiled = torch.compile(function, backend="intarsia")
            assert raises(compiled, *arguments), dtypes


IN_PLACE: dict[str, Callable] = {
    "mul_number": lambda x, y: x.mul_(2.5),
    "mul": lambda x, y: x.mul_(y),
    "multiply": lambda x, y: x.multiply_(y),
    "imul": lambda x, y: x.__imul__(2.5),
    "statement": lambda x, y: operator.imul(x, 2.5),
    "of_a_view": lambda x, y: x[:, :, 1:].mul_(2.5),
    "add": lambda x, y: x.add_(y),
    "div": lambda x, y: x.div_(2),
    "addcmul": lambda x, y: x.addcmul_(y, y),
    "pow": lambda x, y: x.pow_(2.5),
    "remainder": lambda x, y: x.remainder_(y),
    "exp": lambda x, y: x.exp_(),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool], ids=str)
@pytest.mark.parametrize("name", IN_PLACE)
@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_cast_in_place(name, dtype):
    """Functionalised, an operator in place is its result, copied."""

    def f(x, y):
        z = x + x if dtype is not torch.bool else x | x
        IN_PLACE[name](z, y)
        return z

    x, y = torch.ones(1, 1, 4, 4).to(dtype), torch.ones(4)
    compiled = torch.compile(f, backend="intarsia")
    assert raises(compiled, x, y) == raises(f, x, y)
