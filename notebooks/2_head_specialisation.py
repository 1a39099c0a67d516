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
# # Do the heads divide the work?
#
# A model with several attention heads can give each head a job of its own. Or it can let all of them do the same, or
# none of them do anything recognisable. This notebook computes one number between 0 and 1 that tells these apart, the
# *specialisation* score, and asks three things of it: is it high where we know that heads divide the work, low where
# we know that they do not, and is it the same as being right?

# %% [markdown]
# ## One number, taken apart
#
# Take a model that was not trained: its weights were written down from a proof. It answers which end of an arrow is
# asked for. Head 0 fetches the first end, head 1 the second. A *role* says where a head that does a job looks; `usage`
# is how much of what a head moves comes from there, with what a blind head would get taken off.

# %%
from headlab.interp.roles import chance, score
from headlab.models.esp.constructed import construct
from headlab.models.esp.graphs import read_graph
from headlab.models.esp.recipes import plan
from headlab.models.esp.task import EspTask
from headlab.models.hooked import build, initialise

task = EspTask(read_graph("complete:5"))  # five vertices, an arrow from each to each
recipe = plan(task, heads=2, method="cross-entropy")


def untrained(seed):
    model = build(recipe.architecture)
    initialise(model, scale=recipe.recipe.init_scale, seed=seed)
    return model


blind = chance(untrained, task.roles(), seeds=64)
score(construct(task, "two-head").model, task.roles()).render(blind)

# %% [markdown]
# The score is a product. *Coverage* asks whether the worst served job is still done by some head; *separation* asks
# whether the acting head tells you the job. 64 untrained models of the same shape show what the score reads by chance.

# %% [markdown]
# ## Four tasks, one scale
#
# The same score on four tasks whose answer is known: naming the end of an arrow, walking a tree, adding up the largest
# coordinates of a sequence, multiplying two hidden bits. Each has a model from a proof, trained models, and untrained
# ones.

# %%
from headlab.models.esp.training import train

arrows = train(task, heads=2, method="cross-entropy", seeds=range(32), history=True)

# %%
from dataclasses import replace

from headlab.models.training import fit
from headlab.models.tree import constructed as tree_constructed
from headlab.models.tree.evaluation import evaluate
from headlab.models.tree.recipes import RECIPE, direct
from headlab.models.tree.source import TreeSource
from headlab.models.tree.task import TreeTask

tree = TreeTask(TreeSource(depths=(3,), labels=24, nodes=8))
walk = direct(tree, heads=2, d_model=96, recipe=replace(RECIPE, steps=1000, record=40))
learner = walk.learner([0], validation=64, follow=48)
walked = fit(learner, walk.recipe)
walker = learner.export(0)

# %%
from headlab.models.retrieval import constructed as retrieval_constructed
from headlab.models.retrieval.architecture import architecture, start
from headlab.models.retrieval.family import sum_of_maxima
from headlab.models.retrieval.recipes import recipe as retrieval_recipe
from headlab.models.retrieval.recipes import train as train_retrieval
from headlab.models.retrieval.task import RetrievalTask

maxima = RetrievalTask(sum_of_maxima(2, 8))  # two coordinates, eight tokens
shape = architecture(maxima.family, 2)
added = train_retrieval(maxima.family, shape, retrieval_recipe("quick", steps=700), range(4))

# %%
from headlab.models.xor.architecture import to_model
from headlab.models.xor.constructed import limit
from headlab.models.xor.runs import Method
from headlab.models.xor.runs import run as run_xor
from headlab.models.xor.task import XorTask

bits = XorTask(32, targets=(3, 17))  # 32 bits, of which two count
multiplied = run_xor(bits, Method("one-step"), range(8))

# %%
import numpy as np

from headlab.interp.render import Axis, StripRow, strip_chart

roles = {
    name: each.roles(count=64) for name, each in {"arrows": task, "tree": tree, "maxima": maxima, "bits": bits}.items()
}


def scores(name, models):
    return [score(model, roles[name]).specialisation for model in models]


measured = {
    ("arrows", "from the proof"): scores("arrows", [construct(task, "two-head").model]),
    ("arrows", "trained"): scores("arrows", [one.model for one in arrows.models]),
    ("arrows", "untrained"): blind.values[:16],
    ("tree", "from the proof"): scores("tree", [tree_constructed.construct(tree, "forward").model]),
    ("tree", "trained"): scores("tree", [walker]),
    ("tree", "untrained"): scores("tree", map(walk.untrained, range(16))),
    ("maxima", "from the proof"): scores("maxima", [retrieval_constructed.construct(maxima).model]),
    ("maxima", "trained"): scores("maxima", added.models),
    ("maxima", "untrained"): scores("maxima", [start(shape, seed=seed) for seed in range(16)]),
    ("bits", "from the proof"): scores("bits", [limit(bits).model]),
    ("bits", "trained"): scores("bits", [to_model(multiplied.final, row) for row in range(8)]),
    ("bits", "untrained"): scores("bits", [to_model(multiplied.at(0), row) for row in range(8)]),
}
rows = [
    StripRow(
        f"{name}, {kind}",
        values,
        note=f"{len(values)} model{'s' if len(values) > 1 else ''}",
        heads="one" if kind == "untrained" else ("A", "B"),
        result=f"{np.median(values):.2f}",
        marker="diamond" if kind == "from the proof" else "dot",
    )
    for (name, kind), values in measured.items()
]
walked_right = evaluate(walker, tree, count=200).path_accuracy
one_each = int(multiplied.final.placement().one_to_one.sum())
strip_chart(
    rows,
    axis=Axis("specialisation", domain=(0, 1), ticks=(0, 0.25, 0.5, 0.75, 1)),
    result_heading="median",
    title="Specialisation on four tasks",
    description="High for models from a proof and for most trained ones, near 0 for untrained ones.",
    caption="One mark per model; the rows of untrained models are the chance level. "
    f"Right answers: {sum(one.errors == 0 for one in arrows.models)} of 32 trained models of arrows make no error, the "
    f"tree model walks {walked_right:.0%} of 200 trees that it never saw, sums of maxima have an error of "
    f"{max(added.nmse):.0e} of the variance at most, and {one_each} of 8 models of bits look at both bits that count.",
)

# %% [markdown]
# Proofs score 1, untrained models 0, trained models mostly close to 1. The two models of bits at 0 are wrong: both of
# their heads took the same bit, and nothing looks at the other. But look at the row *arrows, trained*: a few dots lie
# far to the left, and every one of these models is right in every question.

# %% [markdown]
# ## Right without dividing: a control
#
# Can a model be right although its heads do not divide the work? On a graph without cycles one head is enough. Give a
# model two copies of that one head, each at half strength: every answer stays right, and nothing is divided.

# %%
from headlab.models.controls import repeated
from headlab.models.esp.evaluation import evaluate as evaluate_arrows

acyclic = EspTask(read_graph("tournament:6"))
made = construct(acyclic, "one-head-dag")
twins = repeated(made.model, made.architecture, copies=2)
print(
    f"two copies of one head: {evaluate_arrows(twins, acyclic).errors} errors, "
    f"specialisation {score(twins, acyclic.roles()).specialisation:.2f}"
)

# %% [markdown]
# Training comes close to that by itself. Put the 32 trained models of the first task in order of their score. All are
# right in all 40 questions; they differ in how they do it.

# %%
found = measured["arrows", "trained"]
order = np.argsort(found)
print("lowest five: ", ", ".join(f"seed {seed} ({found[seed]:.2f})" for seed in order[:5]))
odd, usual = arrows.models[order[0]].model, arrows.models[order[-1]].model
score(odd, task.roles()).render(blind)

# %%
score(usual, task.roles()).render(blind)

# %% [markdown]
# Head 0.0 is the same in both: it fetches the second end. But in the first picture, the odd model, most of what head
# 0.1 moves comes from places that hold no answer. How can that be right? Notebook 4 opens this model up.

# %% [markdown]
# ## When does the division happen?
#
# Weights were kept while the models trained, so the score can be followed. The limits of the phases are read off the
# curve by a rule, not by eye: when it most probably left its first level, and when it reached its last.

# %%
from headlab.interp.changepoint import phase
from headlab.interp.render import Curve, CurvePanel, Level, Phase, coloured, curve_chart

steps = [row["step"] for row in arrows.run.history]
right = np.array([row["accuracy"] for row in arrows.run.history])[:, :8]
divided = np.array(
    [
        [
            score(arrows.learner.export(seed, arrows.run.weights[step]), roles["arrows"]).specialisation
            for seed in range(8)
        ]
        for step in steps
    ]
)
division = phase(np.log1p(steps), np.median(divided, 1))
begin = float(np.expm1(division.start.value))
end = float(np.expm1(division.end.value))


def over_seeds(values):
    return Curve(steps, np.median(values, 1), low=values.min(1), high=values.max(1), heads=("A", "B"))


curve_chart(
    [
        CurvePanel(
            "share of right answers",
            [over_seeds(right)],
            Axis(domain=(0, 1.02), ticks=(0, 0.5, 1)),
            levels=[Level(0.5, "guessing an end", "chance")],
            height=150,
        ),
        CurvePanel(
            "specialisation",
            [over_seeds(divided)],
            Axis(domain=(0, 1.02), ticks=(0, 0.5, 1)),
            levels=[Level(blind.median, f"chance {blind.median:.2f}", "chance")],
            height=150,
        ),
    ],
    axis=Axis("training step (log scale)", scale="log1p", ticks=(0, 3, 10, 30, 100)),
    phases=[Phase(0, "I", "search"), Phase(begin, "II", "divide"), Phase(end, "III", "sharpen")],
    title="Arrows: answers and division over training",
    description=f"The heads divide between steps {begin:.0f} and {end:.0f}.",
    caption="Median and range of 8 seeds. Phase II runs from the last step at the first level of specialisation to the "
    f"first step at its last level (steps {begin:.0f} to {end:.0f}), the most probable pair.",
)

# %% [markdown]
# The tree model has two jobs of unequal difficulty: turning a path around, and looking up parents in a list of edges.

# %%
walk_steps = [row["step"] for row in walked.history_of(0)]
learned = {name: [row[name] for row in walked.history_of(0)] for name in walked.history_of(0)[-1]}
arrived = {
    job: float(np.expm1(phase(np.log1p(walk_steps), learned[f"usage {job}"]).end.value))
    for job in ("reverse", "backward")
}
curve_chart(
    [
        CurvePanel(
            "share of right steps",
            [
                Curve(walk_steps, learned["reverse"], label=coloured("way down", "B"), heads="B"),
                Curve(walk_steps, learned["backward"], label=coloured("way up", "A"), heads="A"),
            ],
            Axis(domain=(0, 1.02), ticks=(0, 0.5, 1)),
            height=170,
        ),
        CurvePanel(
            "usage by the best head",
            [
                Curve(walk_steps, learned["usage reverse"], label=coloured("way down", "B"), heads="B"),
                Curve(walk_steps, learned["usage backward"], label=coloured("way up", "A"), heads="A"),
            ],
            Axis(domain=(0, 1.02), ticks=(0, 0.5, 1)),
            levels=[Level(float(np.median(measured["tree", "untrained"])), "untrained", "chance")],
            height=170,
        ),
    ],
    axis=Axis("training step (log scale)", scale="log1p", ticks=(0, 3, 10, 30, 100, 300, 1000)),
    title="Tree: one job after the other",
    description=f"The way down has its head by step {arrived['reverse']:.0f}, the way up by {arrived['backward']:.0f}.",
    caption="One training run, measured on trees that it never saw. The way down is right first, and has a head of its "
    "own first; the way up follows.",
)

# %% [markdown]
# ## What to take home
#
# - **The score finds division where it is known to be:** 1 for models from a proof, 0 by chance.
# - **Being right is something else.** Two copies of a head are right and score 0. Of 32 trained models that are right
#   in every question, a few score .2 to .5. Accuracy alone would never have told you.
# - **Division is an event.** It takes place within a short stretch of training, and jobs are taken up one by one, the
#   easier one first.
