# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Did training find the mechanism of the proof?
#
# For some tasks the weights of a transformer can be written down: a proof tells us a mechanism that works. Training
# finds weights too. Are they the same mechanism? They never look the same, number by number, because many sets of
# weights are one and the same model. This notebook takes out what is only a choice of coordinates, compares what is
# left, and then opens the trained models that solve the task in *another* way.

# %% [markdown]
# ## Two models that look different and are the same
#
# The task: `u v 1 #` or `u v 2 #`, name the first or the second end of the arrow at `#`. Take the model from the proof
# and disguise it: exchange its heads, and give each head a new, random coordinate system inside. Not one answer
# changes.

# %%
import torch

from headlab.interp.symmetries import disguised
from headlab.models.esp.constructed import construct
from headlab.models.esp.graphs import read_graph
from headlab.models.esp.task import EspTask

task = EspTask(read_graph("click"))  # which module of the Python package click imports which
built = construct(task, "two-head", tied=True).model
masked = disguised(built, seed=0)
inputs = task.examples().inputs
print(f"largest difference of any logit: {(built(inputs) - masked(inputs)).abs().max():.0e}")
for name in ("W_Q", "W_K", "W_V", "W_O"):
    one, other = (getattr(model.blocks[0].attn, name).flatten() for model in (built, masked))
    print(f"{name}: cosine of the raw numbers {torch.cosine_similarity(one, other, dim=0):5.2f}")

# %% [markdown]
# The raw numbers have little in common. What stays under any disguise are two products. **QK**: how strongly a token
# attracts the head's attention. **OV**: what the head adds to each answer once it attends to that token. The comparison
# matches the heads first, then takes cosines of those; 1 is the same mechanism, 0 nothing in common. *In use* weighs
# each row of OV by how much attention it really gets.

# %%
import pandas as pd

from headlab.interp.comparison import chance, compare
from headlab.models.esp.training import train
from headlab.models.hooked import build, initialise

queries = torch.zeros(len(inputs), len(task.positions), dtype=torch.bool)
queries[:, -1] = True  # the answer is read at the last position
trained = train(task, heads=2, method="cross-entropy", seeds=range(8))


def untrained(seed):
    model = build(trained.architecture)
    initialise(model, scale=trained.recipe.init_scale, seed=seed)
    return model


disguise = compare(masked, built, inputs, queries)
alike = [compare(one.model, built, inputs, queries) for one in trained.models]
blind = chance(untrained, built, inputs, queries)
parts = ("qk", "ov", "in_use")
pd.DataFrame(
    {
        "the same model, disguised": [getattr(disguise, part) for part in parts],
        "trained, median of 8": [pd.Series([getattr(each, part) for each in alike]).median() for part in parts],
        "untrained, median of 16": [blind[part].median for part in parts],
        "untrained, 95% below": [blind[part].p95 for part in parts],
    },
    index=["QK", "OV", "OV in use"],
).round(2).T

# %% [markdown]
# ## Look at them side by side
#
# The same rows, the same columns, the same colours. Left of each pair the learned head, right of it the head of the
# proof that it was matched with.

# %%
from headlab.analyses.study.esp import diagrams
from headlab.analyses.study.esp.compared import matrices

best = max(range(8), key=lambda seed: alike[seed].in_use)
pairs = sorted(alike[best].heads, key=lambda pair: pair.b)
diagrams.matrices(
    task.graph.name,
    task.n,
    [matrices(trained.models[best].model, task, pair.a[1]) for pair in pairs],
    [matrices(built, task, pair.b[1]) for pair in pairs],
    [f"similarity QK {pair.qk:.2f} · OV {pair.ov:.2f} · in use {pair.in_use:.2f}" for pair in pairs],
    caption="Rows: the tokens that can be read, by position. QK: how much a row attracts attention at #, mean removed. "
    "OV: what attending to it adds to each of the 12 answers, row and column means removed.",
)

# %% [markdown]
# **What matched heads share:** the stripes of QK, which say *read this end, unless the selector is the other's*, and
# the diagonal of OV, which says *name what you read*. **What training adds:** colour where the proof has grey. The loss
# asks the right answer to win. It does not ask the wrong answers to be equal, so between them anything goes; weighing
# by use makes no difference to that.

# %% [markdown]
# ## Seeds that solve the task in another way
#
# Different random starts can end in different mechanisms. Train 32 models on a small graph. Every one of them answers
# everything right. Do their heads divide the work, as the proof's do? The *specialisation* score says so, from 0 to 1.

# %%
import numpy as np

from headlab.interp.roles import chance as chance_of_score
from headlab.interp.roles import score

small = EspTask(read_graph("complete:5"))
many = train(small, heads=2, method="cross-entropy", seeds=range(32))


def untrained_small(seed):
    model = build(many.architecture)
    initialise(model, scale=many.recipe.init_scale, seed=seed)
    return model


division = np.array([score(one.model, small.roles()).specialisation for one in many.models])
by_chance = chance_of_score(untrained_small, small.roles(), seeds=32)
print(f"{sum(one.errors for one in many.models)} errors in 32 models of {2 * small.m} questions each")
print(
    f"specialisation: median {np.median(division):.2f}; untrained {by_chance.median:.2f}, 95% below {by_chance.p95:.2f}"
)
print("lowest:", ", ".join(f"seed {seed}: {division[seed]:.2f}" for seed in np.argsort(division)[:4]))

# %% [markdown]
# Most are close to 1, a handful are not, and they are just as right. What do they do? A test tells: call the head that
# reads the second end B, and silence it. If A answers only when it is asked, then under question 2 the model can now
# do no more than guess one of the five vertices. The same with A silenced, under question 1.

# %%
from headlab.analyses.study.esp.two_heads import look
from headlab.interp.ablation import ablate_heads
from headlab.interp.render import Axis, StripRow, strip_chart

examples = small.examples()
ends = small.endpoints(examples)
asked = examples.factors["selector"]
default = np.zeros((32, 2))  # [seed, which head is silenced]
for seed, one in enumerate(many.models):
    heads = look(one.model, small).order
    for silenced, other in ((0, 1), (1, 0)):

        def says_other(logits, end=ends[other]):
            return (logits[:, -1].argmax(-1) == end).float()

        found = ablate_heads(one.model, examples.inputs, says_other, kind="zero", groups=[[(0, heads[silenced])]])
        default[seed, silenced] = (found.baseline - found.effect[0])[asked == silenced].mean()
strip_chart(
    [
        StripRow("specialisation", division, note="32 trained models", heads=("A", "B")),
        StripRow("specialisation", by_chance.values, note="32 untrained models"),
        StripRow("B silenced, question 2", default[:, 1], note="names the first end", heads="A"),
        StripRow("A silenced, question 1", default[:, 0], note="names the second end", heads="B"),
    ],
    axis=Axis("share", domain=(0, 1), ticks=(0, 0.2, 0.4, 0.6, 0.8, 1)),
    title="Right in every question, in two ways",
    description=f"{(default.max(1) > 0.5).sum()} of 32 models give the other end by default.",
    caption="One dot per model, all without an error. Guessing one of five vertices gives 0.2 in the last two rows.",
)

# %% [markdown]
# Most models guess, as they should: 0.2. A few do not. With one head silenced they name *the other end*, although
# nobody asked for it, and one of them does so every single time. Its remaining head never listened to the question.

# %%
from headlab.interp.render import AttentionTile, attention_tiles

odd, usual = int(default[:, 1].argmax()), int(division.argmax())


def tiles(seed, said):
    looked = look(many.models[seed].model, small)
    return attention_tiles(
        [
            AttentionTile(letter, f"question {question + 1}", looked.attention[head, question], ["u", "v", "i", "#"])
            for head, letter in enumerate("AB")
            for question in (0, 1)
        ],
        title=f"Seed {seed}: {said}",
        description=f"Attention of both heads under both questions, seed {seed}, specialisation {division[seed]:.2f}.",
        caption=f"Seed {seed}, specialisation {division[seed]:.2f}: {said}. Share of attention at #, per token; "
        "knowing nothing would put 0.25 on each.",
    )


tiles(usual, "each head reads when it is asked, and rests when it is not")

# %%
tiles(odd, "head A does the same under both questions")

# %% [markdown]
# In the usual model head A *switches*. In the odd one A always reads a little of `u`, whatever the question. How loud
# is each head? Measure the size of what it writes.

# %%
from headlab.interp.model import activations

loud = {}
for seed, name in ((usual, "usual"), (odd, "odd")):
    model, heads = many.models[seed].model, look(many.models[seed].model, small).order
    _, held = activations(model, examples.inputs, ["blocks.0.attn.hook_z", "blocks.0.hook_resid_post"])
    written = torch.einsum("ehd,hdm->ehm", held["blocks.0.attn.hook_z"][:, -1], model.W_O[0].detach()).norm(dim=-1)
    total = held["blocks.0.hook_resid_post"][:, -1].norm(dim=-1)
    for question in (0, 1):
        rows = asked == question
        loud[f"{name} model, question {question + 1}"] = [
            *(written[rows, head].mean().item() for head in heads),
            total[rows].mean().item(),
        ]
pd.DataFrame(loud, index=["head A writes", "head B writes", "everything together"]).round(1).T

# %% [markdown]
# There it is. In the odd model A whispers `u`, always at the same volume, and B either says no more than that or
# **shouts** `v`, ten times as loud. The model ends in a normalisation, which divides by the size of everything
# together: while B is quiet the whisper decides the answer; when B shouts it drowns. Head A needs no switch.
#
# ## What to take home
#
# - **Compare mechanisms, not numbers.** The same model in other coordinates has raw weights without any likeness, and a
#   likeness of 1 in QK and OV.
# - **Most seeds find the proof's mechanism:** two heads that switch. They add what the loss does not forbid.
# - **Some seeds find another one:** a default and an override. It is right in every question, and only a score that
#   asks *who does what*, or a head silenced at the right moment, tells it from the first.
