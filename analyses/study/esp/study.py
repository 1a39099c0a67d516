"""The endpoint selection study."""

from headlab.analyses.study.esp.evidence import evidence
from headlab.analyses.study.esp.figures import figures
from headlab.analyses.study.esp.plan import plan
from headlab.analyses.study.esp.told import told
from headlab.analyses.study.frame import Study

STUDY = Study("esp", plan, evidence, figures, told)
run = STUDY.run
