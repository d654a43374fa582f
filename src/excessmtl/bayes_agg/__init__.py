"""BayesAgg-MTL: tasks weighted per sample by a Bayesian last layer."""

from excessmtl.bayes_agg.bayes_agg import BayesAgg

__all__ = ["BayesAgg"]
