"""An operator in Python; exports a program that calls it, or runs the compiled one."""

import sys

import torch


@torch.library.custom_op("pyops::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


twice.register_fake(torch.empty_like)


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.ops.pyops.twice(x) + 1


if __name__ == "__main__":
    x = torch.arange(6.0)
    if sys.argv[1] == "--run":
        import intarsia

        assert torch.equal(intarsia.load(sys.argv[2])(x), x * 2 + 1)
    else:
        torch.export.save(torch.export.export(Model(), (x,)), sys.argv[1])
