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
# # Activation patching: which head carries the answer, and from where?
#
# Take a model that answers well. Run it twice, on two inputs that differ in one thing. Copy one inner value from the
# first run into the second and see whether the answer moves. That is activation patching: a swap that moves the answer
# is a place through which the answer passes.
#
# This notebook does it on a transformer of one layer and two attention heads, small enough that four swaps tell the
# whole mechanism. Then it shows two ways in which the same tool misleads.

# %% [markdown]
# ## A task with one right answer
#
# The input is four tokens: an arrow `u → v` of a graph, the question `1` or `2`, and `#`. At `#` the model must name
# the end that is asked for: `u` for `1`, `v` for `2`. The graph is a real one: which module of the Python package
# *click* imports which.

# %%
from headlab.models.esp.graphs import read_graph
from headlab.models.esp.task import EspTask
from headlab.models.esp.training import train

task = EspTask(read_graph("click"))
trained = train(task, heads=2, method="cross-entropy", seeds=range(4))
model = trained.best.model
print("one input:", " | ".join(task.token_labels(task.examples().inputs[1])))
print(f"{trained.best.accuracy:.0%} of {2 * task.m} questions right; guessing one of the two ends gives 50%")

# %% [markdown]
# ## Two runs that differ in one thing
#
# A *contrast* is a list of such pairs. In the contrast `u` only the first end differs. The *source* run is the one we
# copy from, the *destination* run the one we copy into. We measure how far the model prefers the source's answer to the
# destination's, in logits (the model's scores before they become probabilities).

# %%
from headlab.interp.patching import patch_contrast

contrasts = task.contrasts(count=64)
pair = contrasts["u"]
for name, run in (("source", pair.source), ("destination", pair.destination)):
    print(f"{name:12}", " | ".join(task.token_labels(run[0])))
one_swap = patch_contrast(model, pair, component="z", metric="logit_difference")
print(f"\nbetween the two runs lie {one_swap.gap():.1f} logits, the mean over {len(pair.source)} pairs")

# %% [markdown]
# ## Swap what one head hands on
#
# `z` is what a head has collected at a position, before it writes it down. One sweep swaps it for every head at every
# position, one at a time. 1 means that this one swap brings the whole answer over; 0 that it brings nothing.

# %%
one_swap.render(position_names=task.positions)

# %% [markdown]
# One cell does everything: one of the heads, at the last position. What is the chance level of such a number? Take
# the same model before training and sweep it in the same way. Its runs hardly differ, so compare logits, not shares.

# %%
from headlab.models.hooked import build, initialise

untrained = build(trained.architecture)
initialise(untrained, scale=trained.recipe.init_scale, seed=0)
chance = patch_contrast(untrained, pair, component="z", metric="logit_difference")
largest, by_chance = (float(found.effect().abs().max()) for found in (one_swap, chance))
print(f"largest effect of a swap: {largest:.1f} logits; in the untrained model {by_chance:.2f} logits")

# %% [markdown]
# ## The whole mechanism in one picture
#
# A head reads a token in two ways. Its *value* at that position is what the head takes from there. Its *key* decides
# how much the head attends to it. Swap both, for each head and position, under three contrasts: another first end,
# another second end, another question.

# %%
import numpy as np

from headlab.interp.render import effect_grid

parts = [("value", "v"), ("key", "k")]
names = {"u": "another first end", "v": "another second end", "selector": "another question"}
sweeps = {
    (contrast, part): patch_contrast(model, contrasts[contrast], component=part, metric="logit_difference").normalised()
    for contrast in names
    for _, part in parts
}
grid = np.array(
    [[sweeps[contrast, part][0, head].tolist() for head in (0, 1) for _, part in parts] for contrast in names]
)
effect_grid(
    grid,
    rows=[f"head {head}: {word}" for head in (0, 1) for word, _ in parts],
    columns=task.positions,
    panels=list(names.values()),
    row_axis="what is swapped",
    column_axis="position",
    title="Three contrasts, every value and key",
    description="Each end travels as a value of one head; the question travels as keys of both.",
    caption="Share of the gap that one swap brings over, mean over 46, 46 and 64 pairs. 0 is no effect, 1 all of it.",
    limit=1,
)

# %% [markdown]
# Read it from left to right. One head takes the first end, and only that; the other takes the second end, and only
# that. The question is nobody's value: it is a *key*. It does not say anything, it decides which of the two heads
# speaks, and each head has about half of that decision.

# %% [markdown]
# ## A longer task: which head, at which step?
#
# The same sweep on another task. The input lists the edges of a tree in random order, then a goal. The model must
# write the path from the goal up to the root, and then from the root down again. Here the weights were not learned but
# written down from a proof, so that we know the right answer: head 0 looks up parents, head 1 turns the path around.

# %%
from headlab.models.tree.constructed import construct
from headlab.models.tree.source import TreeSource
from headlab.models.tree.task import TreeTask

tree = TreeTask(TreeSource(depths=(3,), labels=16, nodes=8))
walker = construct(tree, "forward").model
said = {
    "goal": "another goal (read at the goal)",
    "edge": "another parent (read on the way up)",
    "predecessor": "another way (read on the way down)",
}
steps = [
    patch_contrast(walker, contrast, component="z", metric="logit_difference").normalised()[0].tolist()
    for contrast in tree.contrasts(count=32).values()
]
effect_grid(
    steps,
    rows=["head 0", "head 1"],
    columns=tree.positions,
    panels=[said[name] for name in tree.contrasts(count=32)],
    column_axis="position",
    title="Which head, at which step",
    description="On the way up head 0 carries the answer, on the way down head 1.",
    caption="Share of the gap that one swap of z brings over, 32 pairs. Each answer is read where it is written.",
    limit=1,
)

# %% [markdown]
# ## First trap: to bring the answer is not to be needed
#
# There are two directions. *Denoising* copies from a run that is right into one that is not: does this place suffice
# to bring the answer? *Noising* copies from a run that is not right into one that is: is this place needed? They
# need not agree. Here is a model with a spare: head 1.0 (layer 1, head 0) waits until head 0.0 is silent, then does
# its job.

# %%
from headlab.interp.patching import patch_sweep
from headlab.models.esp.backup import backup

spare = backup(task).model
examples = task.examples()
first, second = (examples[examples.factors["selector"] == which] for which in (0, 1))
names_u = task.metrics(first)["logit_difference"]  # high where the first end is named
restored = patch_sweep(spare, first.inputs, second.inputs, names_u, component="z", by=("layer", "head"))
broken = patch_sweep(
    spare, second.inputs, first.inputs, names_u, component="z", by=("layer", "head"), direction="noising"
)
effect_grid(
    [[restored.normalised()[0, 0].item(), broken.normalised()[0, 0].item()]],
    rows=["head 0.0"],
    columns=["copied in (denoising)", "taken out (noising)"],
    title="The same head, asked in two ways",
    description="Copying head 0.0 in restores half of the answer; taking it out costs nothing.",
    caption=f"Share of the gap, {task.m} pairs of questions about the same arrow. Expected without an effect: 0.",
    limit=1,
)

# %% [markdown]
# A head that carries half of the answer, and that nobody misses. Both numbers are right, they answer different
# questions. What settles the matter is to silence the head and its spare, alone and together:

# %%
from headlab.interp.ablation import ablate_heads

groups = [[(0, 0)], [(1, 0)], [(0, 0), (1, 0)]]
right = task.metrics(first)["accuracy"]
silenced = ablate_heads(spare, first.inputs, right, kind="zero", groups=groups).mean.tolist()
for which, share in zip(("head 0.0", "its spare 1.0", "both together"), silenced):
    print(f"without {which:14} {share:4.0%} of the answers are lost")

# %% [markdown]
# ## Second trap: what you put in its place
#
# Instead of swapping between two runs one can *ablate* a head: replace what it hands on by something that should mean
# nothing. But what means nothing? Back to the trained model, four choices, and the share of right answers that is
# lost. Each head serves one question and is silent under the other, so half of this table should be zero.

# %%
selector = examples.factors["selector"]
kinds = {
    "zero": "zero",
    "mean": "the mean over all inputs",
    "resample": "another input's, any question",
    "matched_resample": "another input's, same question",
}
accuracy = task.metrics(examples)["accuracy"]
lost = []
for kind in kinds:
    needs = {} if kind == "zero" else {"reference": examples.inputs}
    matched = {"factors": selector} if kind == "matched_resample" else {}
    by_question = ablate_heads(model, examples.inputs, accuracy, kind=kind, **needs, **matched).by_factor(selector)
    lost.append([by_question[question][head].item() for head in (0, 1) for question in (0, 1)])
effect_grid(
    lost,
    rows=list(kinds.values()),
    columns=[f"head {head}, question {question}" for head in (0, 1) for question in (1, 2)],
    row_axis="put in its place",
    title="What a wrong baseline does",
    description="Only resampling without matching blames a head for questions in which it is silent.",
    caption=f"Accuracy lost, {len(examples)} questions. A model that guesses one of the two ends has lost 0.50.",
    limit=1,
)

# %% [markdown]
# ## What to take home
#
# - **The mechanism fits in one sentence:** each end travels as the value of one head, and the question travels as keys
#   that decide which head speaks. Four of the 48 cells of that grid carry the answer.
# - **Direction matters.** A head can suffice without being needed. Say which of the two you measured.
# - **The baseline matters.** In the row *another input's, any question*, heads are blamed for questions in which they
#   are silent: the replacement came from runs in which they spoke, so it put words into a silent mouth. Matching the
#   question makes the blame vanish. It was never the head's.
