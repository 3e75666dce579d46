"""Digits on several processes: torchrun --nproc-per-node=2 docs/tutorials/many_processes.py"""

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn

from lethe.train import fit

dist.init_process_group("gloo")  # "nccl" on GPUs
torch.manual_seed(0)  # so that all processes build the same model
network = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))

digits = load_digits()
data = torch.tensor(digits.data / 16.0, dtype=torch.float32), torch.tensor(digits.target)
target = {"epsilon": 3.0, "delta": 1e-5, "epochs": 10, "batch_size": 256 // dist.get_world_size()}  # of each process, as in PyTorch
fitted = fit(network, nn.CrossEntropyLoss(), data, **target, lr=0.03)

if dist.get_rank() == 0:
    with torch.no_grad():
        right = (fitted.model(data[0]).argmax(1) == data[1]).double().mean()
    print(f"{dist.get_world_size()} processes, accuracy {right:.2f}, epsilon {fitted.epsilon:.3f}")
dist.destroy_process_group()
