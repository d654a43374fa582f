"""One weighting method per file, named after it. Importing this package registers them, in this order.

"excess", which comes first, is a package of its own.
"""

# isort: off
from excessmtl.methods import uniform, static, gradnorm, mgda, groupdro  # noqa: F401
from excessmtl.methods import imtl, imtl_l, imtl_hybrid, moml, uw, dtp, dwa, rlw  # noqa: F401
from excessmtl.methods import pcgrad, cagrad, graddrop, nash  # noqa: F401
from excessmtl.methods import uw_so, igb, log_loss, gls, stch, famo, cosmos, pbi  # noqa: F401
from excessmtl.methods import fairgrad, upgrad, dualproj, aligned_mtl, config, gradvac, pcd, krum  # noqa: F401
from excessmtl.methods import sdmgrad, modo, auto_lambda, moco, db_mtl, trimmed_mean  # noqa: F401
from excessmtl.methods import ldc_mtl, autoscale, forum, bayes_agg  # noqa: F401

# isort: on
from excessmtl.methods.base import registry

__all__ = ["registry"]
