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
# # Attention circuits: draw one, read one, find one again
#
# An attention circuit is the list of connections that do the work: which token a head reads, through which of its
# three inputs, and where it writes. Usually nobody knows the right list. Here we do: the weights of the first model
# are written down from a proof. So we can draw the circuit, learn to read the drawing, and then ask whether a search
# finds it again in a model that was trained.

# %% [markdown]
# ## Draw it
#
# The task: four tokens `u v 1 #` or `u v 2 #`; at `#`, name the first or the second end. Two heads suffice, and this
# is all they need. An *edge* is one thing that one part of the model reads from another.

# %%
from headlab.interp.circuit_picture import draw_circuit
from headlab.models.esp.constructed import construct
from headlab.models.esp.graphs import read_graph
from headlab.models.esp.task import EspTask

task = EspTask(read_graph("complete:5"))
built = construct(task, "two-head", tied=True)
truth = built.circuit("positional_mean")
letters = [((0, 0), "A"), ((0, 1), "B")]
draw_circuit(truth, positions=task.positions, badges=letters, title="The circuit that the proof gives")

# %% [markdown]
# ## Read it
#
# A head has three inputs. With its *query* (q) it asks, with the *keys* (k) of the tokens it finds, and the *values*
# (v) of what it found it carries away. The list below says the same as the picture: each head carries one end as a
# value, and the selector token enters both heads as a key. It moves nothing. It switches.

# %%
for edge in sorted(truth.edges):
    place = task.positions[edge.position]
    print(f"{edge.source!s:>6} → {edge.destination!s:<4} {edge.port:<4} at {place}")

# %% [markdown]
# Where do the heads look? One tile per head and question, filled by the share of attention at `#`. A head that is not
# asked rests on the selector, whose value is empty.

# %%
from headlab.analyses.study.esp.two_heads import look
from headlab.interp.render import AttentionTile, attention_tiles


def tiles(model, said):
    seen = look(model, task)
    return attention_tiles(
        [
            AttentionTile(letter, f"question {question + 1}", seen.attention[head, question], ["u", "v", "i", "#"])
            for head, letter in enumerate("AB")
            for question in (0, 1)
        ],
        title=f"Attention at #: {said}",
        description="Each head reads its own end when asked, and rests on the selector otherwise.",
        caption=f"Mean over {seen.samples} questions. Attention that knows nothing would put 0.25 on each token.",
    )


tiles(built.model, "weights from the proof")

# %% [markdown]
# ## From token to answer
#
# The same circuit on one arrow, with numbers: how much each head adds to the answer from each token, and to each
# possible answer. Both questions stand side by side. This time the model is a *trained* one.

# %%
from headlab.analyses.study.esp.diagrams import two_head_circuit
from headlab.analyses.study.esp.two_heads import one_arc, shown_arc
from headlab.models.esp.training import train

trained = train(task, heads=2, method="cross-entropy", seeds=range(4))
model = trained.best.model
seen = look(model, task)
arc = shown_arc(task.graph)
parts = one_arc(model, task, seen.order, arc)
two_head_circuit(task.graph.labels, arc, *parts, whose="the best of four trained models")

# %% [markdown]
# ## Find it again
#
# Would a search have found this circuit? Cut each edge of the trained model, one at a time: replace what it carries by
# its mean over all inputs, and see how much the answer loses. Nothing in this cell knows the proof.

# %%
import pandas as pd

from headlab.interp.interventions import Intervention
from headlab.interp.paths import patch_edges

examples = task.examples()
cut = Intervention("positional_mean", reference=examples.inputs)
margin = task.metrics(examples)["logit_difference"]
effects = patch_edges(model, examples.inputs, margin, cut)
pd.Series(effects.weights(), name="logits moved").nlargest(10).round(2).to_frame()

# %% [markdown]
# Now hold that list against the proof. The *area under the curve* is the chance that a true edge ranks above a false
# one: 0.5 for a ranking that knows nothing, 1 for a perfect one. The index of a head carries no meaning, so the proof's
# heads A and B are first matched with the heads that play their roles.

# %%
from headlab.interp.recovery import recovery

places = {(0, 0): (0, seen.order[0]), (0, 1): (0, seen.order[1])}
expected = truth.with_heads(places)
held = recovery(effects, expected)
by_chance = held.random_auroc
print(f"area under the curve {held.auroc:.2f}; 90% of random rankings {by_chance.low:.2f} to {by_chance.high:.2f}")
print(f"weakest true edge {held.smallest_true:.2f} logits, strongest false one {held.largest_false:.2f}")

# %% [markdown]
# Six edges, all six found, in front of everything else. Draw whatever costs more than a tenth of the largest effect:

# %%
from headlab.interp.discovery import threshold_circuit

found = threshold_circuit(effects, above=0.1 * float(effects.scores().max()))
badges = [(places[head], letter) for head, letter in letters]
draw_circuit(found, positions=task.positions, badges=badges, title="The circuit that the search finds")

# %% [markdown]
# The proof's circuit is there. So are two connections that the proof does without: the *value* of the selector. In the
# proof a resting head reads a token that is empty. Training had no reason to empty it, so a resting head writes a
# little, and always the same.
#
# ## Is it enough?
#
# A circuit is complete if the model still works when everything else is cut. Keep only these edges, cut all others at
# once, and see how much of the performance is left. For comparison: as many edges, drawn at random.

# %%
import random

from headlab.interp.discovery import fidelity

lists = {"the proof's 6 edges": expected.edges, f"the search's {len(found.edges)} edges": found.edges}
draw = random.Random(0)
for attempt in range(1, 4):
    lists[f"8 edges at random ({attempt})"] = draw.sample(sorted(effects.edges), 8)
kept = {name: fidelity(model, examples.inputs, margin, cut, edges) for name, edges in lists.items()}
pd.DataFrame(
    {
        name: {"performance kept": f"{abs(each.faithfulness):.0%}", "left when they are cut": f"{abs(each.left):.0%}"}
        for name, each in kept.items()
    }
).T

# %% [markdown]
# ## A circuit that moves
#
# In a longer task the same head reads another place at every step, and the picture to look at is the whole pattern of
# attention. The input lists the edges of a tree, then a goal; the model writes the way up to the root, and down again.
# Rows ask, columns are asked.

# %%
from headlab.interp.model import activations
from headlab.interp.render import Head, attention_patterns
from headlab.models.tree.constructed import construct as construct_tree
from headlab.models.tree.source import TreeSource
from headlab.models.tree.task import TreeTask

tree = TreeTask(TreeSource(depths=(3,), labels=16, nodes=8))
walker = construct_tree(tree, "forward").model
one = tree.examples(count=1)
_, kept = activations(walker, one.inputs, ["blocks.0.attn.hook_pattern"])
attention_patterns(
    kept["blocks.0.attn.hook_pattern"][0],
    tree.token_labels(one.inputs[0]),
    heads=[Head("A", "A up"), Head("B", "B down")],
    title="Two heads walk a tree",
    description="Head A reads the edge that ends in the current node; head B reads its own steps backwards.",
    caption="One tree, weights from the proof. Attention that knows nothing would spread evenly over each row.",
)

# %% [markdown]
# On the way up (rows *back*), head A jumps to the one edge that ends where the walk stands, and head B rests on the
# first token. On the way down (rows *fwd*) they change places: A rests, and B reads the model's own steps backwards, a
# line that runs against the diagonal.

# %% [markdown]
# ## What to take home
#
# - **A circuit is a list of edges, and the input through which an edge enters matters.** As a value a token says
#   something; as a key it decides who speaks.
# - **The search works here, and we can say how well:** all true edges rank before all others, and the eight edges that
#   it finds do the model's work alone. Eight random ones do none of it.
# - **Training adds what nobody forbids.** The learned circuit is the proof's, plus two edges that a proof has no use
#   for, and the model has come to lean on them: without them it keeps four fifths of its performance.
