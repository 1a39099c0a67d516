from headlab.analyses.claims import Claim as Claim
from headlab.analyses.claims import load_claims as load_claims
from headlab.analyses.head_count import HeadCount as HeadCount
from headlab.analyses.head_count import heads_needed as heads_needed
from headlab.analyses.head_count import read_errors as read_errors
from headlab.analyses.tasks import TaskEntry as TaskEntry
from headlab.analyses.tasks import task_entry as task_entry
from headlab.analyses.tasks import tasks as tasks
