import torch
from prelude import dataset, model

from lethe.train import fit

torch.distributed.init_process_group("gloo")
fitted = fit(model, torch.nn.CrossEntropyLoss(), dataset, epsilon=3.0, delta=1e-5, epochs=10, batch_size=64, lr=0.01)
print(fitted)
torch.distributed.destroy_process_group()
