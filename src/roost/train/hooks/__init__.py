"""The hooks that come with roost, one file each."""

from roost.train.hooks.best_checkpoint import Best as Best
from roost.train.hooks.checkpoint_save import Save as Save
from roost.train.hooks.console import Console as Console
from roost.train.hooks.early_stopping import EarlyStop as EarlyStop
from roost.train.hooks.lr_schedule import Schedule as Schedule
from roost.train.hooks.mirrors import Mirrors as Mirrors
from roost.train.hooks.profiler import Profile as Profile
from roost.train.hooks.records import Records as Records
from roost.train.hooks.statistics import Statistics as Statistics
from roost.train.hooks.test_at_end import Test as Test
from roost.train.hooks.time_limit import TimeLimit as TimeLimit
from roost.train.hooks.unsaved_attributes import Unsaved as Unsaved
from roost.train.hooks.validation import Validate as Validate
from roost.train.hooks.visualization import Visualize as Visualize
from roost.train.hooks.weight_averaging import Averaging as Averaging
