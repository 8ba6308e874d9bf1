"""The evaluation of a split: exact means over all samples and ranks. In reading order:

split_evaluation: evaluates a runner on one split, without a Trainer
metric_sums: the sums of metrics for each batch
test_function: `Runner.test` at the end of a training
trainer_evaluation: evaluation by a trainer, with averages of the weights
monitored_metrics: the metrics that hooks decide by
"""
