"""Operations that use the trained weights of a package.

analyze: runs a script on a trained model
predict: runs the Runner on data
export_weights: writes the weights into one file
"""
