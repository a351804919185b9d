"""HiveD: virtual clusters with guarantees, as cells of one physical cluster.

HiveD (Zhao et al., OSDI 2020) gives each tenant a virtual cluster of cells instead of a number of
GPUs. The modules here are the algorithm alone, free of clocks and files: `algorithm.Hived` takes
requests and reports about pods and nodes, and answers with decisions.
"""
