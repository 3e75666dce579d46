"""Digits on several processes: torchrun --nproc-per-node=2 docs/tutorials/many_processes.py"""

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn

import lethe
from lethe.train import fit

dist.init_process_group("gloo")  # "nccl" on GPUs
torch.manual_seed(0)  # so that all processes build the same model
network = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))

digits = load_digits()
data = torch.tensor(digits.data / 16.0, dtype=torch.float32), torch.tensor(digits.target)
run = lethe.Run(
    records=len(digits.target),
    batches=lethe.batches.Poisson(256),
    steps=40,
    step_size=2.0,
    clip_norm=0.5,
    release="all",
    neighbours="zero_out",
)
run = lethe.plan(run, epsilon=3.0, delta=1e-5)
fitted = fit(network, nn.CrossEntropyLoss(reduction="none"), data, run)

if dist.get_rank() == 0:
    with torch.no_grad():
        right = (fitted.model(data[0]).argmax(1) == data[1]).double().mean()
    print(f"{dist.get_world_size()} processes, accuracy {right:.2f}, epsilon {lethe.certify(fitted, delta=1e-5).epsilon:.3f}")
dist.destroy_process_group()
