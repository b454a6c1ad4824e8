# ===- _cache.py - Compiled graphs in PyTorch's cache -------------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""Lets PyTorch's cache of AOTAutograd results hold this backend's programs.

A second process that meets the same graph then neither traces it through AOTAutograd
nor compiles kernels, and ``torch.compiler.save_cache_artifacts`` and
``load_cache_artifacts`` carry the programs to other machines. PyTorch offers this to
the compilers whose result is an `OutputCode`; the rest of what is used here is:

- ``bundled_autograd_cache``: the entry holds the code itself;
- ``force_non_lazy_backward_lowering``: the backward is compiled with the forward, while
  the settings above hold, and saved with it;
- ``post_grad_custom_pre_pass``: a pass of which only the ``uuid`` counts. It is the one
  thing in PyTorch's key that a backend can choose; see `_fingerprint`;
- four functions that hash what only Inductor's code depends on (`_key_of_graph_alone`).
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import logging
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest.mock import patch

import torch
from torch import fx
from torch._functorch import config as functorch_config
from torch._functorch._aot_autograd.autograd_cache import (
    BypassAOTAutogradCache,
    should_use_local_autograd_cache,
    should_use_remote_autograd_cache,
)
from torch._functorch._aot_autograd.schemas import SerializableAOTDispatchCompiler
from torch._inductor import codecache
from torch._inductor import config as inductor_config
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.output_code import OutputCode
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils import _pytree as pytree

from intarsia import _hooks, logs
from intarsia._extension import extension
from intarsia._fingerprint import fingerprint
from intarsia._fx import DTYPES, is_ordered
from intarsia._recording import Compilation, record
from intarsia.options import Options

log = logging.getLogger("intarsia")

__all__ = ["CachedProgram", "cacheable", "can_hold", "enabled", "keyed_by", "memory", "refusal"]


@dataclasses.dataclass
class CachedProgram(OutputCode):
    """A program as PyTorch's cache keeps it.

    Attributes
    ----------
    program : intarsia._C.Program or bytes
        Pickled, in an entry that is written or was not used yet.
    name, kind : str
        As in `intarsia.Compilation`.
    grad_enabled : bool
        As the program's.
    refusal : str
        Why PyTorch's cache cannot have it; "": it can.
    apart : list of (int, bool, str)
    detached : list of int
        As the program's.
    """

    program: Any
    name: str
    kind: str
    grad_enabled: bool
    refusal: str
    apart: list[tuple[int, bool, str]]
    detached: list[int]

    def __post_init__(self) -> None:
        self._boxed_call = True

    def __call__(self, inputs: Sequence[Any]) -> Any:
        return self.program(inputs)

    def prepare_for_serialization(self) -> None:
        # Of a copy of this. Here, so that what fails is known before anything is written.
        if self.refusal:
            raise BypassAOTAutogradCache(self.refusal)
        if (watch := _watch.get()) is not None and watch.called:
            log.info("%s is not cached: tracing it called %s", self.name, ", ".join(watch.called))
            raise BypassAOTAutogradCache("it depends on what can't be compared")
        try:
            self.program = pickle.dumps(self.program)
        except Exception as error:
            raise BypassAOTAutogradCache(
                f"the program can't be pickled: {type(error).__name__}: {error}"
            ) from error

    def post_compile(self, example_inputs: Any, constants: Any, graph_kwargs: Any) -> None:
        if isinstance(self.program, bytes):
            self.program = pickle.loads(self.program)
        _hooks.prepare_program(self.program, self.grad_enabled, self.detached)
        self.program.apart = self.apart
        log.info("%s: found in PyTorch's cache", self.name)
        logs.show(self.name, self.program)
        record(Compilation(self.name, self.kind, 0.0, self.program, "", cached=True))

    def set_triton_bundle(self, triton_bundle: Any) -> None:
        pass


#: While a graph is compiled: on the operators that its key does not have.
_watch: contextvars.ContextVar[Any] = contextvars.ContextVar("intarsia_watch", default=None)


class _Salt(CustomGraphPass):
    """Never run: this backend does not call Inductor's passes."""

    def __init__(self, digest: str) -> None:
        self._digest = digest

    def __call__(self, graph: torch.fx.Graph) -> None:
        raise AssertionError("the salt of intarsia's cache key is not a pass")

    def uuid(self) -> str:
        return self._digest


def enabled(settings: Options) -> bool:
    """Whether graphs go to the cache: PyTorch's switches decide.

    Not when the stages are to be seen, which only compiling makes.
    """
    return (
        settings.dump_root() is None
        and not logs.stages_wanted()
        and inductor_config.fx_graph_cache
        and (should_use_local_autograd_cache() or should_use_remote_autograd_cache())
    )


def can_hold(gm: fx.GraphModule) -> bool:
    """Whether PyTorch can make a key of Dynamo's graph, and print it.

    It makes none of a nested tensor, and has no short names for integers of some bits.
    """
    values = (node.meta.get("example_value") for node in gm.graph.nodes)
    tensors = (t for value in values for t in pytree.tree_leaves(value))
    return not any(
        isinstance(t, torch.Tensor) and (t.is_nested or t.dtype not in DTYPES) for t in tensors
    )


def refusal(gm: fx.GraphModule) -> str:
    """Why the cache cannot have the program of AOTAutograd's graph, as it was compiled."""
    nodes = [
        node
        for module in gm.modules()
        if isinstance(module, fx.GraphModule)
        for node in module.graph.nodes
    ]
    # PyTorch forgets in its cache to hand tokens on.
    if any(map(is_ordered, nodes)):
        return "calls of the program are ordered by tokens"
    if any(
        isinstance(node.target, torch._ops.HigherOrderOperator)
        and node.target.name().startswith("triton_kernel_wrapper")
        for node in nodes
    ):
        return "a kernel of Triton that Python launches is known by a number of this process"
    return ""


def cacheable(compiler: Callable[..., Any]) -> SerializableAOTDispatchCompiler:
    """`compiler`, which returns a `CachedProgram`, in the form that AOTAutograd caches."""
    return SerializableAOTDispatchCompiler(CachedProgram, compiler)


@contextlib.contextmanager
def _key_of_graph_alone() -> Iterator[None]:
    """Leaves out of the key what is in ours in another form, or means nothing to us.

    They are PyTorch's own sources, Triton's library, and Inductor's heuristics and
    code generators, for which all of Inductor is imported: together two seconds at the
    first graph. The fingerprint has PyTorch's version and commit.
    """
    with (
        patch.object(codecache, "torch_key", lambda: b"intarsia"),
        patch.object(codecache.CacheBase, "get_system", lambda: {"hash": "intarsia"}),
        patch.object(codecache, "init_backend_registration", lambda: None),
        # Not by patch.object: a module of settings takes no other attributes.
        patch.dict(vars(inductor_config), _cache_config_serializer=None),
    ):
        yield


def memory(inputs: Sequence[Any]) -> str:
    """Which inputs are views of the same memory, and where in it each begins.

    AOTAutograd computes overlapping inputs from their common base, and its key, which
    has sizes and strides, has neither of these.
    """
    first: dict[int, int] = {}
    places = []
    for number, x in enumerate(inputs):
        if isinstance(x, torch.Tensor) and torch._C._has_storage(x):
            same = first.setdefault(x.untyped_storage()._cdata, number)
            if same != number or not statically_known_true(x.storage_offset() == 0):
                places.append((number, same, str(x.storage_offset())))
    return str(places)


@contextlib.contextmanager
def keyed_by(settings: Options, ambient: str, custom_code: bool) -> Iterator[None]:
    """AOTAutograd's cache, with this compiler and the operators in its key.

    `ambient` names the modes around the graph that PyTorch's key does not have;
    `custom_code` says whether the graph may call operators that are not PyTorch's.
    """
    digest, incomparable = fingerprint(dataclasses.asdict(settings), custom_code)
    salt = _Salt(f"intarsia {digest} {ambient}")
    watch = extension().watch_operators(sorted(incomparable)) if incomparable else None
    token = _watch.set(watch)
    try:
        with (
            functorch_config.patch(
                bundled_autograd_cache=True, force_non_lazy_backward_lowering=True
            ),
            inductor_config.patch(post_grad_custom_pre_pass=salt),
            _key_of_graph_alone(),
        ):
            yield
    finally:
        _watch.reset(token)
        del watch  # also where an exception keeps this frame
