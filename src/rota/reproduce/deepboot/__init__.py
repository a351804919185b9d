"""DeepBoot's simulator (Chen et al., TPDS 2023): training on GPUs that inference leaves idle."""
