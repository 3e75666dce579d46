import torch
from prelude import dataset, model

from lethe.train import fit

model[0].requires_grad_(False)
fitted = fit(model, torch.nn.CrossEntropyLoss(), dataset, epsilon=3.0, delta=1e-5, epochs=10, batch_size=64, lr=0.01)
print(fitted)
