"""The paper's empirical claims, a file for each part of it, each claim with the rule it is judged by."""
