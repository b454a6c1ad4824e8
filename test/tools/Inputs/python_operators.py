"""An operator in Python; exports a program that calls it, or runs the compiled one."""

import sys

import torch


@torch.library.custom_op("pyops::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


twice.register_fake(torch.empty_like)
twice.register_vmap(lambda info, dims, x: (twice(x), dims[0]))

library = torch.library.Library("pyops", "FRAGMENT")
library.define("one(Tensor x) -> float")
library.impl("one", lambda x: 1.0, "CPU")
torch.library.register_fake("pyops::one", lambda x: 1.0 * (x.device.type == "cpu"), lib=library)


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.ops.pyops.twice(x) + torch.ops.pyops.one(x)


class Vmapped(torch.nn.Module):
    def forward(self, x):
        return torch.vmap(twice)(x.view(2, 3)).view(6) + 1


if __name__ == "__main__":
    x = torch.arange(6.0)
    if sys.argv[1] == "--run":
        import intarsia

        for path in sys.argv[2:]:
            assert torch.equal(intarsia.load(path)(x), x * 2 + 1)
    else:
        for model, path in zip((Model(), Vmapped()), sys.argv[1:], strict=True):
            torch.export.save(torch.export.export(model, (x,)), path)
