"""TensorBoard's writer over `roost.init`: ``from roost.compat.tensorboard import SummaryWriter``.

summary_writer: SummaryWriter, with the signatures of ``torch.utils.tensorboard``
"""

from roost.compat.tensorboard.summary_writer import SummaryWriter

__all__ = ["SummaryWriter"]
