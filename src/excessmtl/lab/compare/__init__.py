"""Statistics of finished runs, one copy of each: collecting, measures, regret, tables."""
