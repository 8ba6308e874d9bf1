"""The hooks that come with roost, one file each."""

from roost.train.hooks.averaging import Averaging as Averaging
from roost.train.hooks.best import Best as Best
from roost.train.hooks.console import Console as Console
from roost.train.hooks.early_stop import EarlyStop as EarlyStop
from roost.train.hooks.mirrors import Mirrors as Mirrors
from roost.train.hooks.profile import Profile as Profile
from roost.train.hooks.records import Records as Records
from roost.train.hooks.save import Save as Save
from roost.train.hooks.schedule import Schedule as Schedule
from roost.train.hooks.statistics import Statistics as Statistics
from roost.train.hooks.test import Test as Test
from roost.train.hooks.time_limit import TimeLimit as TimeLimit
from roost.train.hooks.unsaved import Unsaved as Unsaved
from roost.train.hooks.validate import Validate as Validate
from roost.train.hooks.visualize import Visualize as Visualize
