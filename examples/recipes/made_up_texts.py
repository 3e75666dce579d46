"""Texts that are made up, and a tokeniser of their few words: the data of recipes that run without a download."""

import random
from collections.abc import Iterable

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast

BAD, GOOD = ["dull", "false", "cold", "long", "lost", "flat"], ["bright", "true", "warm", "brisk", "fresh", "deep"]
REVIEWS = ("a {} film with {} people and a {} end .", "what a {} , {} , {} story !", "{} , if {} , and i was never so {} .")
NAMES, FOODS = ["aroma", "bibi", "cotto", "lungo", "taste", "vaults"], ["english", "french", "indian", "italian"]
AREAS, PRICES = ["centre", "riverside", "suburb"], ["cheap", "dear", "fair"]
PUBLIC = ("{name} is in the {area} and {food} food there is {price} .",)
PRIVATE = ("the {name} serves {price} {food} food in the {area} .", "in the {area} the {name} serves {price} {food} food .")


def reviews(records: int, seed: int) -> tuple[list[str], list[int]]:
    """Sentences on films, and 1 where two of the three words of judgement or more are good, else 0."""
    draw = random.Random(seed)
    judgements = [[draw.randrange(2) for _ in range(3)] for _ in range(records)]
    texts = [draw.choice(REVIEWS).format(*(draw.choice((BAD, GOOD)[good]) for good in words)) for words in judgements]
    return texts, [int(sum(words) >= 2) for words in judgements]


def restaurants(records: int, seed: int, manners: tuple[str, ...]) -> list[tuple[str, str]]:
    """(facts of a restaurant, a sentence that says them in one of the manners)."""
    draw, pairs = random.Random(seed), []
    for _ in range(records):
        facts = {"name": draw.choice(NAMES), "area": draw.choice(AREAS), "food": draw.choice(FOODS), "price": draw.choice(PRICES)}
        pairs.append((" ".join(facts.values()), draw.choice(manners).format(**facts)))
    return pairs


def tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """A token for each word of the texts, which are public."""
    words = ["<s>", "<pad>", "</s>", "<unk>", *sorted({word for text in texts for word in text.split()})]
    model = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    model.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=model, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>")
