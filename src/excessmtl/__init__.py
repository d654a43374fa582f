"""Multi-task learning that one badly labelled task cannot ruin."""

from excessmtl.balancer import Balancer
from excessmtl.create import ExcessMTL, create, list_methods
from excessmtl.step import Step

__all__ = ["Balancer", "ExcessMTL", "Step", "create", "list_methods"]
__version__ = "0.1.0"
