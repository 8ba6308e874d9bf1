"""Tasks that make files from checkpoints: exported weights, predictions, evaluations.

project_weights: the weights in checkpoints of DLNest's contract
weight_mean: the weights in checkpoints, and their mean
convert_weights: weights of another trainer as a safetensors file
export_task: the export of weights into one file
predict_task: the prediction of a set
prediction_source: the data to predict
prediction_writer: the files of a prediction
evaluate_task: an evaluation, one rank of it
grid_weights: the weights of its grid
grid_progress: the position in it
"""
