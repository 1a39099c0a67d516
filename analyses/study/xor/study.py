"""The sparse XOR study."""

from headlab.analyses.study.frame import Study
from headlab.analyses.study.xor.evidence import evidence
from headlab.analyses.study.xor.figures import figures
from headlab.analyses.study.xor.plan import plan
from headlab.analyses.study.xor.told import told

STUDY = Study("xor", plan, evidence, figures, told)
run = STUDY.run
