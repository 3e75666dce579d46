"""What every task has: a model, private records, public ones, and the records and the model of a text classifier."""

import torch
from torch.utils.data import TensorDataset

torch.manual_seed(0)
inputs = torch.randn(400, 16)
targets = inputs[:, :3].argmax(1)
dataset = TensorDataset(inputs[:300], targets[:300])
public = inputs[300:], targets[300:]
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 3))


def texts():
    """300 texts of 8 words, each in one of two classes."""
    from datasets import Dataset

    words = torch.randint(2, 50, (300, 8))
    return Dataset.from_dict({"input_ids": words, "labels": (words[:, 0] > 25).long()}).with_format("torch")


def classifier():
    """A small BERT; yours comes from a hub."""
    from transformers import BertConfig, BertForSequenceClassification

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    return BertForSequenceClassification(BertConfig(vocab_size=50, max_position_embeddings=8, **sizes))
