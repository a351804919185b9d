"""ElasticFlow's simulator (Gu et al., ASPLOS 2023): its meaning of policies, and its numbers."""
