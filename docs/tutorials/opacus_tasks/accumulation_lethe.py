import torch
from prelude import dataset, model

from lethe.train import PrivacyEngine, TrainOptions

criterion = torch.nn.CrossEntropyLoss(reduction="none")
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)


def losses(batch):
    return criterion(model(batch[0]), batch[1])


options = TrainOptions(physical_size=16)
engine = PrivacyEngine(model, optimizer, losses, dataset, epsilon=3.0, delta=1e-5, epochs=10, batch_size=64, options=options)
for batch in engine.batches():
    engine.backward(batch)
    optimizer.step()
    optimizer.zero_grad()
print(engine.epsilon())
