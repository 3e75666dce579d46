"""Film reviews that are made up, with a tokeniser for their few words: the data of recipes that run small, without a download."""

import random

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast

FRAMES = ("a {} film with {} people and a {} end .", "what a {} , {} , {} story !", "{} , if {} , and i was never so {} .")
BAD, GOOD = ["dull", "false", "cold", "long", "lost", "flat"], ["bright", "true", "warm", "brisk", "fresh", "deep"]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "<end>"]


def reviews(records: int, seed: int) -> tuple[list[str], list[int]]:
    """Sentences, and 1 where two of the three words of judgement or more are good, else 0."""
    draw = random.Random(seed)
    judgements = [[draw.randrange(2) for _ in range(3)] for _ in range(records)]
    texts = [draw.choice(FRAMES).format(*(draw.choice((BAD, GOOD)[good]) for good in words)) for words in judgements]
    return texts, [int(sum(words) >= 2) for words in judgements]


def tokenizer(*more: str) -> PreTrainedTokenizerFast:
    """A token for each word of a review, and for each of `more`."""
    words = sorted({*" ".join(FRAMES).replace("{}", "").split(), *BAD, *GOOD, *more})
    model = Tokenizer(WordLevel({word: number for number, word in enumerate(SPECIAL + words)}, unk_token="<unk>"))
    model.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=model, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>")
