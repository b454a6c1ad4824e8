# ===- backend.py - torch.compile(backend="intarsia") ------------------------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""The ``torch.compile`` backend.

Dynamo hands over a graph; AOTAutograd traces through autograd, functionalises and
splits it into inference, forward and backward graphs; each of these is read
(`intarsia._fx`), compiled and becomes a `Program` of the extension, which AOTAutograd
then calls with one list of arguments.
"""

from __future__ import annotations

import functools
import itertools
import logging
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import fx

from intarsia import (
    _apart,
    _cache,
    _cuda,
    _cudagraphs,
    _fx,
    _hooks,
    _partition,
    _pieces,
    _products,
    _subgraphs,
    _triton,
    decompositions,
    logs,
)
from intarsia._extension import extension
from intarsia._fingerprint import may_call_custom_code
from intarsia._recording import Compilation, record, record_compilations
from intarsia._writes import check_writes, use_what_is_written
from intarsia.errors import CompileError
from intarsia.options import Options

__all__ = ["Compilation", "intarsia", "record_compilations"]

log = logging.getLogger("intarsia")

_graph_numbers = itertools.count()


def intarsia(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Callable[..., Any]:
    """Compiles one Dynamo graph; the backend that ``torch.compile`` calls.

    Parameters
    ----------
    gm, example_inputs
        As Dynamo gives them.
    mode
        One of torch.compile's modes; sets options that `options` does not.
    options
        See `intarsia.options.Options`.
    name
        torch.compile's ``name``: begins the names of this function's graphs.

    Returns
    -------
    callable
        Takes the graph's inputs, returns its outputs. Threads may call it at the
        same time.

    Raises
    ------
    OptionError
        For a mode or an option that does not exist.
    CompileError
        When a graph cannot be compiled; Dynamo wraps it in
        ``BackendCompilerFailed``.
    """
    settings = Options.resolve(mode, options)
    _check_modes(gm)

    def compile_piece(piece: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        test = _pieces.has_effects_inside
        if not _pieces.needs_cut(piece, inputs, test):
            try:
                return _compile_dynamo_graph(piece, inputs, settings, name)
            except Exception:
                tests = (t for t in _pieces.REFUSED if _pieces.needs_cut(piece, inputs, t))
                if (test := next(tests, None)) is None:
                    raise
        return _pieces.compile_in_pieces(piece, inputs, test, compile_piece, settings.strict)

    test = _pieces.is_differentiated_inside
    if _pieces.needs_cut(gm, example_inputs, test):
        args = (gm, example_inputs, test, compile_piece, settings.strict)
        return _pieces.compile_in_pieces(*args)
    return compile_piece(gm, example_inputs)


def _check_modes(gm: fx.GraphModule) -> None:
    """Refuses a region of inference mode: AOTAutograd fails inside of it, and stays in it."""
    for module in gm.modules():
        for node in module.graph.nodes if isinstance(module, fx.GraphModule) else ():
            if node.target is torch.autograd.grad_mode._enter_inference_mode:
                raise CompileError(
                    "torch.inference_mode() inside of a compiled function is not traced by "
                    "AOTAutograd: use torch.no_grad() there, or torch.inference_mode() around the "
                    f"call\n  source:   {_fx.source_line(node.next)}"
                )


def _compile_dynamo_graph(
    gm: fx.GraphModule, example_inputs: Sequence[Any], settings: Options, name: str | None
) -> Callable[..., Any]:
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch import config as functorch_config

    gpus = _cuda.archs(gm)
    # Captured memory is this process's.
    captured = settings.cudagraphs and gpus
    caching = _cache.enabled(settings) and not captured and _cache.can_hold(gm)
    stem = f"{_safe_name(name) if name else 'graph'}{next(_graph_numbers)}"
    names = _input_names(gm)

    autocast = _hooks.note_autocast(gm)
    # An inference graph runs with grad mode off. Where eager had it on, a kernel that
    # differentiates inside must find it on.
    grad_enabled = torch.is_grad_enabled()
    hidden = _pieces.hidden_gradients(gm) if grad_enabled else set()

    def compiler(kind: str) -> Callable[..., Any]:
        inference_grad = grad_enabled and kind == "inference"

        def compile_graph(graph: fx.GraphModule, inputs: Sequence[Any]) -> Any:
            program = _compile_graph(
                graph,
                inputs,
                kind=kind,
                stem=stem,
                settings=settings,
                user_names=names,
                grad_enabled=inference_grad,
                hidden=hidden if inference_grad else set(),
            )
            if not caching:
                return program
            refusal = _cache.refusal(graph)
            return _cache.CachedProgram(
                program,
                name=f"{stem}_{kind}",
                kind=kind,
                grad_enabled=inference_grad,
                refusal=refusal,
                apart=program.apart,
                detached=program.detached,
            )

        return _cache.cacheable(compile_graph) if caching else compile_graph

    backend = aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
        # With fusion, recomputing pointwise chains in the backward costs less than
        # storing them; without, every operator runs once as in eager.
        partition_fn=functools.partial(_partition.partition, settings.fuse),
        keep_inference_input_mutations=True,
        decompositions=decompositions.table(),
    )
    check_writes(gm)
    use_what_is_written(gm)
    # On a GPU the kernels of a triton_op are launched by the plan; elsewhere it stays whole,
    # as every other operator does.
    # PyTorch would run an operator once where the program calls it twice with equal
    # arguments, though nothing says that it always returns the same.
    opens = settings.fuse and bool(gpus)
    settled = functorch_config.patch(decompose_custom_triton_ops=opens, cse=False)
    cache: Any = nullcontext()
    if caching:
        memory = _cache.memory(example_inputs)
        ambient = (
            f"grad {grad_enabled} autocast {autocast} memory {memory} gpus {gpus} "
            f"onednn {_products.is_allowed()}"
        )
        cache = _cache.keyed_by(settings, ambient, may_call_custom_code(gm, example_inputs))
    analysed = _triton.target(gpus) if opens else nullcontext()
    with _hooks.keep_effects(gm), settled, cache, analysed:
        compiled = backend(gm, example_inputs)
    return _apart.in_eager_where_moved(gm, example_inputs, compiled, stem)


# Fires when torch.compile resolves the backend, before anything is traced.
intarsia._dynamo_backend_init = _hooks.install  # type: ignore[attr-defined]
intarsia._is_intarsia = True  # type: ignore[attr-defined]


def _compile_graph(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    kind: str,
    stem: str,
    settings: Options,
    user_names: Sequence[str],
    grad_enabled: bool = False,
    hidden: Collection[int] = (),
) -> Any:
    """Compiles one graph of AOTAutograd; returns a program, or programs, a boxed callable."""
    metadata = _metadata()
    if metadata is not None:
        # We overwrite no saved tensor. AOTAutograd would refuse
        # backward(retain_graph=True), which eager allows, to a backend that does.
        metadata.bw_donated_idxs = []
    if settings.products == "fastest":
        _products.choose(gm)

    def compile_piece(piece: fx.GraphModule, label: str) -> Any:
        return _compile_piece(
            piece, f"{stem}_{kind}{label}", kind, settings, user_names, grad_enabled, hidden
        )

    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    static = _static_inputs(placeholders, kind)
    apart = []
    if kind != "backward":
        names = [_input_name(node, user_names) for node in placeholders]
        apart = _apart.watched(placeholders, names, metadata, static)
    if settings.cudagraphs and _cudagraphs.is_wanted(gm):
        captured = _cudagraphs.compile_graph(gm, static, compile_piece)
        return _apart.Watching(captured, apart) if apart else captured
    program = compile_piece(gm, "")
    program.apart = apart
    return program


def _compile_piece(
    gm: fx.GraphModule,
    name: str,
    kind: str,
    settings: Options,
    user_names: Sequence[str],
    grad_enabled: bool,
    hidden: Collection[int],
) -> Any:
    start = time.perf_counter()
    gpus = _cuda.archs(gm) if settings.fuse else []
    if gpus:
        remaining, _ = _triton.lower(gm, gpus, may_choose=False)
        for note in remaining:
            log.info("%s: %s", name, note)
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    numbers = itertools.count()
    static = _static_inputs(placeholders, kind)
    names = [_input_name(node, user_names) for node in placeholders]
    read = _fx.read_graph(
        gm,
        static_inputs=static,
        input_names=names,
        visible_outputs=_visible_outputs(gm, kind),
        compile_subgraph=lambda subgraph: _subgraphs.compiled_when_called(
            subgraph, lambda: settings.for_graph(f"{name}_subgraph{next(numbers)}")
        ),
    )
    options = settings.for_graph(name)
    if gpus:
        options["archs"] = gpus
    with logs.stages(options) as folder:
        program = extension().compile(read.json, read.objects, {**options, "dump_dir": folder})
        logs.show(name, program, folder)
    # AOTAutograd's calling convention: one list, which the callee empties.
    program._boxed_call = True
    detached = [
        i for i, node in enumerate(placeholders) if _plain_input(node.meta.get("desc")) in hidden
    ]
    _hooks.prepare_program(program, grad_enabled, detached)
    seconds = time.perf_counter() - start
    log.info(
        "%s: %d nodes, %d calls, %d kernels, compiled in %.1f ms",
        name,
        len(gm.graph.nodes),
        program.call_count,
        program.kernel_count,
        seconds * 1e3,
    )
    if gpus:
        log.info("%s: kernels for CUDA are made for %s", name, ", ".join(gpus))
    if options["dump_dir"]:
        log.info("%s: stages written to %s", name, options["dump_dir"])
    record(Compilation(name, kind, seconds, program, options["dump_dir"]))
    return program


# --- What AOTAutograd knows of inputs and outputs ---------------------------------


def _metadata() -> Any:
    """AOTAutograd's ViewAndMutationMeta of the function being compiled, or None."""
    context = torch._guards.TracingContext.try_get()
    return context.fw_metadata if context is not None else None


def _visible_outputs(gm: fx.GraphModule, kind: str) -> list[int] | None:
    """The outputs whose strides the user can see; None: all."""
    if kind != "forward":
        return None
    output = next(node for node in reversed(gm.graph.nodes) if node.op == "output")
    descriptors = output.meta.get("desc")
    if descriptors is None:
        return None
    return [
        i
        for i, descriptor in enumerate(descriptors)
        if not type(descriptor).__name__.startswith("SavedForBackwards")
    ]


def _plain_input(descriptor: Any) -> int | None:
    """The index of the Dynamo input that a graph input comes from."""
    while descriptor is not None:
        if type(descriptor).__name__ == "PlainAOTInput":
            return descriptor.idx
        descriptor = getattr(descriptor, "base", None)
    return None


def _static_inputs(placeholders: Sequence[fx.Node], kind: str) -> list[int]:
    """Placeholders that are parameters or buffers."""
    metadata = _metadata()
    if metadata is None:
        return []
    # In inference graphs the recorded indices count the effect tokens.
    shift = len(metadata.tokens) if kind == "inference" else 0
    static = {index - shift for index in metadata.static_input_indices}
    return [
        i for i, node in enumerate(placeholders) if _plain_input(node.meta.get("desc")) in static
    ]


def _input_name(node: fx.Node, user_names: Sequence[str]) -> str:
    """What the user calls this graph input; empty when they have no name for it."""
    descriptor = node.meta.get("desc")
    index = _plain_input(descriptor)
    if index is not None and index < len(user_names):
        return user_names[index]
    if type(descriptor).__name__ == "TangentAOTInput":
        output = getattr(descriptor.output, "idx", None)
        return f"gradient of output {output}" if output is not None else "gradient of an output"
    return ""


def _input_names(gm: fx.GraphModule) -> list[str]:
    """The user's name for each input of the Dynamo graph."""
    names = []
    for node in gm.graph.nodes:
        if node.op != "placeholder":
            continue
        argument = node.meta.get("grapharg")
        source = getattr(argument, "source", None)
        name = getattr(source, "name", None) or ""
        names.append(readable_source(name() if callable(name) else name))
    return names


_LOCAL = re.compile(r"^[LG]\['([^']*)'\]")
_CONTAINER = re.compile(r"\._(?:modules|parameters|buffers)\['([^']*)'\]")


def readable_source(name: str) -> str:
    """``L['self']._modules['fc']._parameters['weight']`` as ``self.fc.weight``."""
    return _CONTAINER.sub(r".\1", _LOCAL.sub(r"\1", name))


def _safe_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name) + "_"
