"""Liang et al. 2025, Figures 1 and 2: what a reader must know of the numbers."""

from __future__ import annotations

from lethe_experiments.liang.plans import CERTIFIABLE, DELTA, LEVEL, PUBLISHED, SHARES, SMOOTHNESS, STEP_SIZE, Plan


def notes(data: str, plan: Plan) -> tuple[str, ...]:
    """What was chosen, what the numbers rest on, and what they are not."""
    bounded = plan.diameters != (None,)
    shares = ", ".join(f"{share:.0%}" for share in SHARES)
    network = "a ResNet-18 with group normalisation" if plan.network == "resnet18" else "a small convolutional network with tanh"
    domain = (
        " With a domain, the start and every iterate are projected on the ball of that diameter, after the noise; "
        f"L = {SMOOTHNESS:g} is declared, since nobody knows it of a network. The paper's published code has no projection."
    )
    return (
        f"estimate: equation (24) as printed, at delta = {DELTA:g}, from the attack's guesses about all candidates of a model; the mean of "
        f"{plan.repeats} models, and half the width of its 95% confidence interval by Student's t. It is a point estimate: many guesses on "
        "one model are not independent trials of the mechanism, and it bounds epsilon from neither side.",
        f"certified_bound: from the same scores. Each candidate was included by its own fair coin; of all {plan.candidates * plan.repeats} "
        f"candidates of the models the top {shares} are guessed IN and as many at the bottom OUT, shares declared in advance; the bound of "
        f"Steinke, Nasr & Jagielski 2023, Theorem 5.2, is wrong with probability at most {LEVEL:g} in each row, not in all rows at once. "
        "0 says that nothing was found, not that nothing leaks. The paper's members are no coin flips, so its scores allow no such bound.",
        "published: the paper's equation (12)" + (", or (14) where that is smaller" if bounded else "") + ", minimised over beta and the "
        "order. Both are false as stated, see liang-2025-3.3 and -3.4 among the theorems; the paper draws them normalised.",
        "certificate: the smallest epsilon that is proved here of the executed run, one record zeroed out; where it is composition, no "
        "curvature is needed and every iterate may be seen." + (domain if bounded else ""),
        f"{PUBLISHED.name}: C = {PUBLISHED.clip_norm:g}, sigma = {PUBLISHED.noise_std:g}, at which neither the paper nor Lethe proves "
        f"anything useful. {CERTIFIABLE.name}: C = {CERTIFIABLE.clip_norm:g}, sigma = {CERTIFIABLE.noise_std:g}, added here: an attack "
        "can contradict a certificate only where that is small.",
        f"Data: {data}. Each model has {plan.candidates} candidates, about half of them members, and {plan.shadows} shadow models on other "
        f"records; {network}; step size {STEP_SIZE:g}; Poisson batches, as in the paper's text and not in its code. The attack: a 10-50-2 "
        f"network for each class on the logits, SGD at 0.01, momentum 0.9, weight decay 5e-4, batches of 100, {plan.attack_steps} steps.",
        "The paper has CIFAR-10 with random crops and flips, 10000 members, ResNet-18, 10 shadow models and 10 repeats; --full has those "
        "sizes, on the data that is given, without crops and flips. Its published numbers stand in a picture and are not compared.",
        "The losses are computed without noise, and anyone can draw the noise again from the number of the repeat: this is a figure, not a "
        "release.",
    )
