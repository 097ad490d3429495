"""The vLLM side: the only folder that imports vLLM and torch.

The way of one step: ``runner`` asks ``pcp`` for the dispatch count and the local batch
(plan, tables), vLLM runs the forward, ``pcp`` restores, vLLM samples, ``pp`` carries
the sampled tokens back (feedback).
"""
