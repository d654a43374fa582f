"""How well `excessmtl.diagnose` reads label noise: trained networks whose noise is known."""
