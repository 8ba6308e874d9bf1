"""Optimizers, learning-rate schedules, and averages of weights. In reading order:

optimizer: `Optim`, an optimizer with scheduler, gradient clipping and loss scaler
optimizer_config: builds the optimizers of the section ``optimizers``
schedulers: builds and checks learning-rate schedulers; the warm-up
optimizer_overrides: changed optimizer settings of a fork or a forced session
weight_average: EMA and SWA of weights
"""
