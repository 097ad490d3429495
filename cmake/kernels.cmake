# Filled by cpp/kernels.
