"""Ways to share a network between tasks, each usable with any encoder.

Every one is a module `inputs -> {task: output}`. Its `shared` is what the tasks share, to be given to a balancer:

    model = architectures.MMoE(make_encoder, heads, features=21, experts=4)
    balancer = excessmtl.create("excess", tasks=list(heads), shared=model.shared)
"""

from excessmtl.architectures.base import MultiTask
from excessmtl.architectures.cgc import CGC
from excessmtl.architectures.cross_stitch import CrossStitch
from excessmtl.architectures.dselect_k import DSelectK
from excessmtl.architectures.hard_sharing import HardSharing
from excessmtl.architectures.ltb import LTB
from excessmtl.architectures.mmoe import MMoE
from excessmtl.architectures.mtan import MTAN
from excessmtl.architectures.ple import PLE

__all__ = ["CGC", "LTB", "MTAN", "PLE", "CrossStitch", "DSelectK", "HardSharing", "MMoE", "MultiTask"]
