from peft import LoraConfig, get_peft_model
from prelude import classifier, texts
from transformers import Trainer, TrainingArguments

from lethe.integrations.transformers import privatize

model = get_peft_model(classifier(), LoraConfig(task_type="SEQ_CLS", r=4, target_modules=["query", "value"]))
args = TrainingArguments("tuned", per_device_train_batch_size=64, num_train_epochs=3, learning_rate=0.01, save_strategy="no")
trainer = privatize(Trainer(model=model, args=args, train_dataset=texts()), epsilon=8.0, delta=1e-5)
trainer.train()
print(trainer.certificate_)
