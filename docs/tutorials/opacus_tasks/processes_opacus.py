import torch
from opacus import PrivacyEngine
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
from prelude import dataset, model

torch.distributed.init_process_group("gloo")
criterion = torch.nn.CrossEntropyLoss()
model = DifferentiallyPrivateDistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
loader = torch.utils.data.DataLoader(dataset, batch_size=64)
privacy_engine = PrivacyEngine()
model, optimizer, loader = privacy_engine.make_private_with_epsilon(
    module=model, optimizer=optimizer, data_loader=loader, target_epsilon=3.0, target_delta=1e-5, epochs=10, max_grad_norm=1.0
)
for epoch in range(10):
    for inputs, targets in loader:
        criterion(model(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
print(privacy_engine.get_epsilon(delta=1e-5))
torch.distributed.destroy_process_group()
