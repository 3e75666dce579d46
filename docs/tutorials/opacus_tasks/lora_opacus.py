import torch
from opacus import PrivacyEngine
from peft import LoraConfig, get_peft_model
from prelude import classifier, texts

model = get_peft_model(classifier(), LoraConfig(task_type="SEQ_CLS", r=4, target_modules=["query", "value"])).train()
optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=0.01)
loader = torch.utils.data.DataLoader(texts(), batch_size=64)
privacy_engine = PrivacyEngine()
model, optimizer, loader = privacy_engine.make_private_with_epsilon(
    module=model, optimizer=optimizer, data_loader=loader, target_epsilon=8.0, target_delta=1e-5, epochs=3, max_grad_norm=1.0
)
for epoch in range(3):
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
print(privacy_engine.get_epsilon(delta=1e-5))
