# ===- test_private_names.py - What of PyTorch's private code is used ---------===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""docs/private-names.md lists the modules, for one version of PyTorch."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]


def names(tree: ast.AST) -> Iterator[str]:
    """The dotted names that a source imports or writes out."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute):
            parts = []
            inner: ast.expr = node
            while isinstance(inner, ast.Attribute):
                parts.append(inner.attr)
                inner = inner.value
            if isinstance(inner, ast.Name):
                yield ".".join([inner.id, *reversed(parts)])


def module_of(name: str) -> str:
    """The longest part of a name that is a module."""
    while True:
        try:
            importlib.import_module(name)
            return name
        except ImportError:
            name = name.rpartition(".")[0]


def test_the_private_modules_are_listed() -> None:
    used = {
        module_of(name)
        for path in (ROOT / "python" / "intarsia").rglob("*.py")
        for name in set(names(ast.parse(path.read_text())))
        if name.startswith("torch.")
    }
    page = (ROOT / "docs" / "private-names.md").read_text()
    listed = re.findall(r"^\| `(torch\.[\w.]+)` \|", page, re.MULTILINE)
    assert listed == sorted(module for module in used if "._" in module)


def test_they_are_those_of_this_version() -> None:
    """What is replaced while compiling has the form that the replacement expects."""
    from torch._functorch._aot_autograd import runtime_wrappers
    from torch._inductor import codecache, config

    assert torch.__version__.startswith("2.15."), "look at docs/private-names.md again"
    for function in (
        codecache.torch_key,
        codecache.CacheBase.get_system,
        codecache.init_backend_registration,
    ):
        assert not inspect.signature(function).parameters
    assert "_cache_config_serializer" in vars(config)
    assert hasattr(config, "post_grad_custom_pre_pass")
    assert hasattr(runtime_wrappers, "_AnalyzeCustomOpInputOutputMode")
