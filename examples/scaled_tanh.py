"""A custom operator in a compiled function, with its gradient.

Run with ``./dev exec python examples/scaled_tanh.py``. The operator
``mylib::scaled_tanh`` is written in Python and stays one opaque call; what surrounds
it is compiled. Nothing of Intarsia is imported: the backend is found by its name.
"""

import torch


@torch.library.custom_op("mylib::scaled_tanh", mutates_args=())
def scaled_tanh(x: torch.Tensor, scale: float) -> torch.Tensor:
    """``tanh(x) * scale``, of the shape and dtype of `x`."""
    return torch.tanh(x) * scale


@scaled_tanh.register_fake
def _(x, scale):
    return torch.empty_like(x)


def setup_context(ctx, inputs, output):
    _, ctx.scale = inputs
    ctx.save_for_backward(output)


def backward(ctx, grad):
    (y,) = ctx.saved_tensors
    return grad * (ctx.scale - y * y / ctx.scale), None


scaled_tanh.register_autograd(backward, setup_context=setup_context)


def model(x, w):
    h = torch.nn.functional.gelu(x @ w)
    h = scaled_tanh(h, 2.0)
    return (h * h + 1).log().sum(dim=-1)


def gradient(f, x, w):
    """The output of `f` and the gradient of its sum with respect to `x`."""
    x = x.clone().requires_grad_()
    y = f(x, w)
    y.sum().backward()
    return y.detach(), x.grad


def main():
    torch.manual_seed(0)
    x, w = torch.randn(32, 64), torch.randn(64, 48) / 8

    # What is registered must hold together before anything is compiled.
    sample = torch.randn(3, 5, requires_grad=True)
    checks = torch.library.opcheck(scaled_tanh, (sample, 2.0))
    print("opcheck:", ", ".join(f"{name} {result.lower()}" for name, result in checks.items()))

    compiled = torch.compile(model, backend="intarsia", fullgraph=True)
    y, grad = gradient(compiled, x, w)
    y_eager, grad_eager = gradient(model, x, w)
    print(f"largest difference to eager: output {(y - y_eager).abs().max():.1e}")
    print(f"                             x.grad {(grad - grad_eager).abs().max():.1e}")
    torch.testing.assert_close(y, y_eager)
    torch.testing.assert_close(grad, grad_eager)
    print("equal to eager")


if __name__ == "__main__":
    main()
