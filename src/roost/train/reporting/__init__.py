"""What a run reports while it trains: progress, throughput, media files. In reading order:

progress_publisher: writes the progress record
media_files: images, audio, text, histograms and matrices as files
array_bytes: tensors as arrays, arrays as .npy
png: the PNG encoder
"""
