"""The hooks that come with roost, one file each, and two modules that they share.

weight_averaging: keeps an average of the weights.
statistics: records norms and histograms of gradients, weights and updates.
lr_schedule: steps the learning-rate schedulers.
validation: evaluates the validation sets.
visualization: stores the media of `Runner.visualize`.
best_checkpoint: saves when a metric is among the best so far.
early_stopping: ends a run that no longer improves.
records: writes rows of metrics.
checkpoint_save: saves checkpoints.
console: prints the progress.
mirrors: runs the processes that copy rows and media to TensorBoard, W&B, MLflow or CSV.
time_limit: ends a session before its time limit.
profiler: traces a few steps.
speed_profile: measures what holds a run back.
unsaved_attributes: reports attributes that no checkpoint holds.
test_at_end: evaluates the test set at the end of a finished run.
monitor: the metric by which a hook decides.
"""

from roost.train.hooks.best_checkpoint import Best as Best
from roost.train.hooks.checkpoint_save import Save as Save
from roost.train.hooks.console import Console as Console
from roost.train.hooks.early_stopping import EarlyStop as EarlyStop
from roost.train.hooks.lr_schedule import Schedule as Schedule
from roost.train.hooks.mirrors import Mirrors as Mirrors
from roost.train.hooks.profiler import Profile as Profile
from roost.train.hooks.records import Records as Records
from roost.train.hooks.speed_profile import SpeedProfile as SpeedProfile
from roost.train.hooks.statistics import Statistics as Statistics
from roost.train.hooks.test_at_end import Test as Test
from roost.train.hooks.time_limit import TimeLimit as TimeLimit
from roost.train.hooks.unsaved_attributes import Unsaved as Unsaved
from roost.train.hooks.validation import Validate as Validate
from roost.train.hooks.visualization import Visualize as Visualize
from roost.train.hooks.weight_averaging import Averaging as Averaging
