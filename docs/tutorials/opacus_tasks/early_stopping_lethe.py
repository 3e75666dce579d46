import torch
from prelude import dataset, model, public

from lethe.train import TrainOptions, fit

options = TrainOptions(validation_data=public, patience=2)
fitted = fit(model, torch.nn.CrossEntropyLoss(), dataset, epsilon=3.0, delta=1e-5, epochs=10, batch_size=64, lr=0.01, options=options)
print(fitted)
