"""Which tasks have bad labels, how bad, and which labels they are."""

from excessmtl.diagnosis.classes import ClassRate
from excessmtl.diagnosis.diagnose import diagnose
from excessmtl.diagnosis.report import Report, TaskReport
from excessmtl.diagnosis.suspects import Suspect
from excessmtl.diagnosis.warn_once import WarnOnce

__all__ = ["ClassRate", "Report", "Suspect", "TaskReport", "WarnOnce", "diagnose"]
