"""Exports a model with one input and two outputs to FOLDER/model.pt2."""

import sys

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1, x.sum()


torch.export.save(torch.export.export(Model(), (torch.randn(2, 3),)), f"{sys.argv[1]}/model.pt2")
