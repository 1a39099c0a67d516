"""The study of path finding in trees."""

from headlab.analyses.study.frame import Study
from headlab.analyses.study.tree.evidence import evidence
from headlab.analyses.study.tree.figures import figures
from headlab.analyses.study.tree.plan import plan
from headlab.analyses.study.tree.told import told

STUDY = Study("tree", plan, evidence, figures, told)
run = STUDY.run
