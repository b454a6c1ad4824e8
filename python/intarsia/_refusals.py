# ===- _refusals.py - What PyTorch refuses before us ---------------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""The errors with which PyTorch refuses an operator that eager runs, and what to do.

Dynamo, AOTAutograd and export act before a backend, which cannot change their mind. It
can say what to do: `advice_for` is what the notes are made of that our entry points add
to such errors, and what the table ``docs/who-refuses.md`` quotes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from intarsia._fakes import missing_fake_advice, wrong_gradient_advice

__all__ = ["REFUSALS", "Refusal", "advice_for", "refusal_of"]


@dataclass(frozen=True)
class Refusal:
    """One way in which PyTorch refuses.

    Attributes
    ----------
    who
        Dynamo, AOTAutograd, export or serialiser.
    pattern
        A regular expression that its message matches.
    advice
        What the user can do; a sentence or two.
    """

    who: str
    pattern: str
    advice: str


_BETWEEN = "without fullgraph=True Dynamo calls the operator between two compiled graphs"
_PLAIN_EXPORT = "save the program without run_decompositions(): it then runs call by call, in order"

REFUSALS = (
    Refusal(
        "Dynamo",
        r"Failed to convert args/kwargs to proxy",
        f"Dynamo's graphs have no place for an argument of this type; {_BETWEEN}.",
    ),
    Refusal(
        "Dynamo",
        r"returned non-Tensor",
        "Dynamo takes a number only beside a tensor: let the operator return (Tensor, SymInt) "
        f"or (Tensor, float); or {_BETWEEN}.",
    ),
    Refusal(
        "Dynamo",
        r"Attempted to call op with non-contiguous",
        "Dynamo traces no write of an operator that is tagged torch.Tag.out into a tensor that "
        "is not contiguous: write into a contiguous one and copy it, or leave out the tag and "
        f"return nothing; or {_BETWEEN}.",
    ),
    Refusal(
        "Dynamo",
        r"Attempted to wrap sparse Tensor",
        "Dynamo does not trace sparse tensors: let the operator return their parts; "
        f"or {_BETWEEN}.",
    ),
    Refusal(
        "Dynamo",
        r"quantized nyi in meta tensors",
        "PyTorch traces no tensors with a quantisation scheme: pass the integers, x.int_repr(), "
        f"the scale and the zero point; or {_BETWEEN}.",
    ),
    Refusal(
        "AOTAutograd",
        r"Please convert all Tensors to FakeTensors first",
        "AOTAutograd does not look for tensors in a dictionary or tuple: pass them as Tensor[].",
    ),
    Refusal(
        "AOTAutograd",
        r"'dict' object has no attribute 'append'",
        "AOTAutograd cannot functionalise a mutated list of optional tensors: declare "
        f"Tensor(a!)[] and leave out what is None; or export, and {_PLAIN_EXPORT}.",
    ),
    Refusal(
        "AOTAutograd",
        r"output has alias annotations|whose output has alias annotations",
        "AOTAutograd refuses a custom operator that returns what it was given: return nothing, "
        "the caller has the tensor that is written; tag it torch.Tag.inplace or torch.Tag.out "
        "if it returns exactly that; a view must be a copy, or made of PyTorch's own views in "
        f"a CompositeImplicitAutograd kernel. Or export, and {_PLAIN_EXPORT}.",
    ),
    Refusal(
        "AOTAutograd",
        r"no autograd formula was registered",
        "AOTAutograd traces the backward together with the forward: register a formula with "
        "register_autograd, or, where no gradient is wanted, call the function under "
        "torch.no_grad() or the operator on x.detach().",
    ),
    Refusal(
        "AOTAutograd",
        r"non-differentiable view input mutations",
        "AOTAutograd does not train through two inputs that share memory and are written: "
        "pass the base, and take the views inside the function.",
    ),
    Refusal(
        "export",
        r"Expected code to be unreachable",
        "export has no place for a result of this type: return tensors and numbers; or use "
        f"torch.compile, where {_BETWEEN}.",
    ),
    Refusal(
        "export",
        r"User output nan",
        "export compares a constant result with itself, and NaN is not equal to itself: return "
        "it in a tensor.",
    ),
    Refusal(
        "export",
        r"expected compiled_fn to be GraphModule",
        f"PyTorch's run_decompositions() does not take inputs that share memory: {_PLAIN_EXPORT}.",
    ),
    Refusal(
        "serialiser",
        r"Failed serializing node[^\n]*target=torch\.ops\.higher_order\.",
        "torch.export.save cannot write this higher-order operator; torch.compile runs it.",
    ),
    Refusal(
        "serialiser",
        r"Failed serializing node",
        "the program cannot be saved by torch.export.save, whose format has no place for a "
        "value of this type: return numbers as tensors without dimensions; torch.compile takes "
        "them as they are.",
    ),
    Refusal(
        "serialiser",
        r"^torch\.u?int[1-7]$",
        "torch.export.save cannot write tensors of this dtype: return the bytes, "
        "y.view(torch.uint8), and view them in the kernel that reads them; torch.compile takes "
        "such a tensor as it is.",
    ),
    Refusal(
        "serialiser",
        r"not enough values to unpack",
        f"torch.export.save cannot write the result of an operator that is an empty list: "
        f"{_PLAIN_EXPORT}.",
    ),
)


def refusal_of(message: str) -> Refusal | None:
    """The refusal that an error of PyTorch's is."""
    return next((r for r in REFUSALS if re.search(r.pattern, message)), None)


def advice_for(message: str) -> str | None:
    """What to note on an error with this message; None when it is no refusal."""
    if (advice := missing_fake_advice(message) or wrong_gradient_advice(message)) is not None:
        return advice
    refusal = refusal_of(message)
    return f"intarsia: {refusal.advice}" if refusal is not None else None
