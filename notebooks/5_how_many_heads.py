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
# # How many heads does a task need?
#
# Add heads one by one, train, and look at the error. For some tasks the error does not fade, it *falls off a cliff* at
# one number of heads. This notebook shows two such cliffs, proves for a given model that it stands before one, and
# reads the number off a table of errors.

# %% [markdown]
# ## One head must put everything in a line
#
# The task: an arrow `u → v` of a graph, a question `1` or `2`; name that end. With one head, a theorem says, the model
# holds an *order* of the vertices, and for each arrow that runs against the order one of its two questions goes wrong.
# So the smallest number of arrows that must run backwards in any order is a floor under the errors. It can be computed
# before anything is trained.

# %%
from headlab.models.esp.feedback import minimum_feedback_arc_set
from headlab.models.esp.graphs import read_graph
from headlab.models.esp.task import EspTask
from headlab.models.esp.training import train

task = EspTask(read_graph("click"))  # which module of the Python package click imports which
floor = minimum_feedback_arc_set(task.graph)
print(f"{task.m} arrows, {2 * task.m} questions; any order has at least {floor.lower} arrows that run backwards")
one_head = train(task, heads=1, method="gce", seeds=range(8), steps=500)
two_heads = train(task, heads=2, method="cross-entropy", seeds=range(8))

# %%
from headlab.interp.render import Axis, Limit, StripRow, bold, percent, strip_chart

ceiling = 1 - floor.lower / (2 * task.m)
strip_chart(
    [
        StripRow(
            name,
            [one.accuracy for one in found.models],
            note="8 random starts",
            heads=heads,
            result=percent(found.best.accuracy),
            result_note=f"{found.best.errors} errors",
            bounded=heads == "one",
        )
        for name, found, heads in (("one head", one_head, "one"), ("two heads", two_heads, ("A", "B")))
    ],
    axis=Axis("share of questions answered right", domain=(0.8, 1), ticks=(0.8, 0.85, 0.9, 0.95, 1)),
    limit=Limit(
        ceiling,
        label=[bold(percent(ceiling)), " ceiling"],
        formula=f"1 − {floor.lower} / {2 * task.m}",
        beyond="out of reach",
        beyond_note="for one head",
    ),
    result_heading="best",
    title="One head and two",
    description=f"The best of 8 one-head models has {one_head.best.errors} errors; two heads have none.",
    caption="One dot per trained model. Naming one of the two ends at random gives 50 %, outside the picture.",
)

# %% [markdown]
# The order is no figure of speech. It can be read off the weights of a trained one-head model. Arrows above the names
# run forward, those below run backward: these are the questions that the model gives up.

# %%
from headlab.analyses.study.esp.diagrams import learned_order
from headlab.models.esp.certificate import certify

certificate = certify(one_head.best.model, task, feedback=floor)
learned_order(
    task.graph,
    certificate.order,
    floor.lower,
    caption=f"The order in the weights of the best one-head model; it makes {one_head.best.errors} errors. "
    f"No order gives up fewer than {floor.lower} arrows.",
)

# %% [markdown]
# ## A task with a dial
#
# In the second task the number of things to find can be chosen. The input is a sequence of vectors; for each of D
# directions the model must find the token that reaches farthest, and the answer is the sum of those D maxima. One head
# can look at one place. How many heads does D = 2 need, and D = 3? Train all combinations, at two lengths.

# %%
import pandas as pd

from headlab.models.retrieval.architecture import architecture
from headlab.models.retrieval.family import sum_of_maxima
from headlab.models.retrieval.learner import draw_data
from headlab.models.retrieval.recipes import recipe
from headlab.models.retrieval.recipes import train as train_retrieval

rows, models = [], {}
for coordinates in (2, 3):
    for length in (8, 16):
        family = sum_of_maxima(coordinates, length)
        data = draw_data(family, train=4000, validation=1000)
        for heads in (1, 2, 3, 4):
            plan = recipe("quick", steps=400)
            made = train_retrieval(family, architecture(family, heads), plan, range(2), data=data)
            models[coordinates, length, heads] = made.models[made.best]
            rows += [{"maxima": coordinates, "heads": heads, "length": length, "error": error} for error in made.nmse]
table = pd.DataFrame(rows)

# %%
from headlab.interp.render import Curve, CurvePanel, Level, curve_chart

curves = []
for coordinates, letter in ((2, "A"), (3, "B")):
    for length in (8, 16):
        cells = table[(table.maxima == coordinates) & (table.length == length)].groupby("heads")["error"]
        curves.append(
            Curve(
                [1, 2, 3, 4],
                cells.mean().to_numpy(),
                low=cells.min().to_numpy(),
                high=cells.max().to_numpy(),
                label=f"D = {coordinates}",
                note=f"{length} tokens",
                heads=letter,
                dash=length == 16,
                points=True,
            )
        )
curve_chart(
    [
        CurvePanel(
            "error, as a share of the answer's variance",
            curves,
            Axis(scale="log", domain=(1e-5, 2), ticks=(1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1)),
            levels=[Level(1, "guessing the mean", "chance")],
            height=300,
        )
    ],
    axis=Axis("heads", domain=(0.8, 4.2), ticks=(1, 2, 3, 4)),
    title="Error against heads",
    description="With D = 2 the error falls off at two heads, with D = 3 at three.",
    caption="Mean and range of 2 trained models per point; 1000 sequences that none of them saw in training.",
)

# %% [markdown]
# Before the cliff a head more helps a little. At D heads the error drops by a factor of several hundred at once. After
# it, further heads hardly matter.

# %% [markdown]
# ## Two inputs that a model cannot tell apart
#
# Is a model before the cliff just badly trained? No, and one can show it. Search for two inputs whose right answers lie
# far apart, while all that the heads hand on is the same for both. Whatever comes after the heads, it cannot be right
# on both. The size of the error is then *forced*.

# %%
from headlab.models.retrieval.task import RetrievalTask
from headlab.models.retrieval.witness import find_witness

question = RetrievalTask(sum_of_maxima(3, 8))
pairs = {heads: find_witness(models[3, 8, heads], question, steps=200) for heads in (1, 2, 3)}
pd.DataFrame(
    {
        f"{heads} head{'s' if heads > 1 else ''}": {
            "right answers": "{:.2f} and {:.2f}".format(*pair.targets),
            "the model's answers": "{:.2f} and {:.2f}".format(*pair.outputs),
            "distance of what the heads hand on": f"{pair.distance:.0e}",
            "error forced, standard deviations": f"{max(pair.forced, 0):.2f}",
        }
        for heads, pair in pairs.items()
    }
).T

# %% [markdown]
# With two heads there is a pair of inputs for which D = 3 has quite different answers and the model gives one and the
# same. (A distance of 1 is that of two inputs drawn at random.) With three heads the same search comes back with
# nothing. Here is the pair of the two-headed model, as it sees it: the same three directions for both inputs, with the
# largest value in each.

# %%
import numpy as np

from headlab.interp.render import effect_grid

family = sum_of_maxima(3, 8)
first, second = (sequence.numpy() for sequence in pairs[2].sequences)
directions = np.array(family.vectors)
reach = np.stack([directions @ first.T, directions @ second.T])
effect_grid(
    reach,
    rows=[f"direction {index}" for index in range(3)],
    columns=[f"token {index}" for index in range(8)],
    panels=[f"first input: the answer is {pairs[2].targets[0]:.2f}", f"second input: {pairs[2].targets[1]:.2f}"],
    title="A pair that two heads confuse",
    description="Two inputs with different right answers that the two-headed model cannot tell apart.",
    caption="How far each token reaches in each direction. The answer adds up the largest number of each row. "
    f"The model says {pairs[2].outputs[0]:.2f} to both.",
)

# %% [markdown]
# ## Read D off a table
#
# Now turn it around: somebody gives you a table of errors and does not say what D is. Weigh every possible place of the
# cliff by how well it explains the table (its *posterior probability*; before looking, all places are equally likely).

# %%
from headlab.analyses.head_count import heads_needed

two, three = (table[table.maxima == count] for count in (2, 3))
readings = {
    "table for D = 2": heads_needed(two),
    "table for D = 3": heads_needed(three),
    "table for D = 3, only 1 and 2 heads tried": heads_needed(three[three.heads < 3]),
}
pd.DataFrame(
    {
        name: {
            "heads needed": "more than were tried" if found.needed is None else found.needed,
            "probability": f"{found.probability:.3f}",
            "before looking": f"{1 / len(found.posterior.names):.2f}",
            "drop": "" if found.drop is None else f"{found.drop:.0f}-fold",
        }
        for name, found in readings.items()
    }
).T

# %% [markdown]
# ## What to take home
#
# - **Below some number of heads errors are forced.** One head holds one order of the vertices; two heads of this size
#   look at two places, and what stands in a third is lost before the rest of the model sees it.
# - **A witness shows it for a given model:** two inputs, two right answers, one and the same output.
# - **The number can be read off a table of errors,** with its probability, and the method says so when the cliff lies
#   beyond the table.
